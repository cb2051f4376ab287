// Package overlay lays changed files over a file system, so that a check can be tried on a copy of a specification or source tree without
// copying it.
package overlay

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// FS is a file system with files of its own in front of another one. The zero value of Base is an empty file system. Names are cleaned, so
// that a name that leaves a folder and comes back finds the same file.
type FS struct {
	base  fs.FS // nil for none
	files map[string][]byte
	gone  map[string]bool
}

// New returns an overlay without changes. A nil base is empty.
func New(base fs.FS) *FS {
	return &FS{base: base, files: map[string][]byte{}, gone: map[string]bool{}}
}

// Put adds or replaces a file.
func (o *FS) Put(name string, content []byte) {
	name = path.Clean(name)
	delete(o.gone, name)
	o.files[name] = content
}

// Remove hides a file.
func (o *FS) Remove(name string) {
	name = path.Clean(name)
	delete(o.files, name)
	o.gone[name] = true
}

// PutDir puts every file below a folder of another file system at the same place below a folder of the overlay.
func (o *FS) PutDir(to string, from fs.FS, dir string) error {
	return fs.WalkDir(from, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		o.Put(path.Join(to, strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")), content)
		return nil
	})
}

// Open implements fs.FS.
func (o *FS) Open(name string) (fs.File, error) {
	name = path.Clean(name)
	if content, ok := o.files[name]; ok {
		return &file{info{path.Base(name), int64(len(content))}, bytes.NewReader(content)}, nil
	}
	if o.gone[name] || o.base == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return o.base.Open(name)
}

// ReadDir implements fs.ReadDirFS: the members of both, by name.
func (o *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	name = path.Clean(name)
	entries := map[string]fs.DirEntry{}
	if err := o.below(name, entries); err != nil {
		return nil, err
	}
	for file, content := range o.files {
		if rest, ok := inside(name, file); ok {
			member, _, deeper := strings.Cut(rest, "/")
			if deeper {
				entries[member] = dirEntry{info{name: member, size: -1}}
				continue
			}
			entries[member] = dirEntry{info{member, int64(len(content))}}
		}
	}
	if len(entries) == 0 {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	out := make([]fs.DirEntry, 0, len(entries))
	for _, e := range entries {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out, nil
}

// below adds the members of a folder of the base that are not hidden.
func (o *FS) below(name string, entries map[string]fs.DirEntry) error {
	if o.base == nil {
		return nil
	}
	list, err := fs.ReadDir(o.base, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range list {
		if !o.gone[path.Join(name, e.Name())] {
			entries[e.Name()] = e
		}
	}
	return nil
}

// inside is the name of a file from a folder.
func inside(dir, file string) (string, bool) {
	if dir == "." {
		return file, !strings.HasPrefix(file, "../") && !strings.HasPrefix(file, "/")
	}
	return strings.CutPrefix(file, strings.TrimSuffix(dir, "/")+"/")
}

// info describes a file, or a folder when the size is negative.
type info struct {
	name string
	size int64
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return max(i.size, 0) }
func (i info) IsDir() bool        { return i.size < 0 }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) Sys() any           { return nil }

func (i info) Mode() fs.FileMode {
	if i.IsDir() {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

type dirEntry struct{ info }

func (d dirEntry) Type() fs.FileMode          { return d.Mode().Type() }
func (d dirEntry) Info() (fs.FileInfo, error) { return d.info, nil }

// file is one open file of the overlay.
type file struct {
	info
	io.Reader
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

// Lay returns a file system in which the files of a folder below dir lie over those of dir itself: the fixtures of a specification are such
// folders, which hold only what differs.
func Lay(base fs.FS, dir, folder string) (*FS, error) {
	o := New(base)
	return o, o.PutDir(dir, base, path.Join(dir, folder))
}
