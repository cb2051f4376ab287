package emit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Report says what Write did.
type Report struct {
	Written, Removed []string // slash-separated, sorted
	Kept             int      // files that had the right content already; the manifest is not counted
}

// stagedName is where a file is written before it is put into its place. The Go tools do not see such files, and a run that was killed leaves
// none that the next run does not know.
func stagedName(target string) string {
	return filepath.Join(filepath.Dir(target), ".fitzgen-"+filepath.Base(target))
}

// Write brings the output folder to the given files, of which the last is the manifest.
//
//   - A file that has its content already is not touched and keeps its time.
//   - All others are written beside their place first and renamed when the last of them is complete, so that a run that is killed leaves each
//     file whole, and before that moment the old tree.
//   - What the manifest in the folder lists and files lacks is removed; no other file ever is. While the tree changes, the manifest lists the
//     old and the new files, so that the next run knows all of them.
func Write(dir string, files []File) (Report, error) {
	return writeWith(dir, files, func() error { return nil })
}

// writeWith is Write that asks before each step that changes the tree whether it may go on.
func writeWith(dir string, files []File, next func() error) (report Report, err error) {
	old, err := ReadManifest(os.DirFS(dir))
	if err != nil {
		return report, err
	}
	manifest := files[len(files)-1]
	if manifest.Path != ManifestName {
		return report, fmt.Errorf("the last file is %s, not the manifest", manifest.Path)
	}
	if err := cleanUp(dir, old, files); err != nil {
		return report, err
	}
	staged, report, err := stageAll(dir, files[:len(files)-1])
	defer func() {
		for _, s := range staged {
			err = errors.Join(err, s.discard())
		}
	}()
	if err != nil {
		return report, err
	}
	var steps []func() error
	gone := missing(old, files)
	if len(staged)+len(gone) > 0 {
		steps = append(steps, func() error { return writeTransition(dir, manifest, gone) })
	}
	for i := range staged {
		steps = append(steps, staged[i].commit)
	}
	for _, e := range gone {
		steps = append(steps, func() error { return remove(dir, e.Path) })
		report.Removed = append(report.Removed, e.Path)
	}
	steps = append(steps, func() error { return replace(dir, manifest) })
	for _, step := range steps {
		if err := next(); err != nil {
			return report, err
		}
		if err := step(); err != nil {
			return report, err
		}
	}
	return report, nil
}

// cleanUp removes what a run that was killed left beside the files that it would have replaced.
func cleanUp(dir string, old Manifest, files []File) error {
	names := map[string]bool{}
	for _, e := range old.Files {
		names[e.Path] = true
	}
	for _, f := range files {
		names[f.Path] = true
	}
	for name := range names {
		err := os.Remove(stagedName(filepath.Join(dir, filepath.FromSlash(name))))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// stageAll writes every file that is not in place yet beside its place.
func stageAll(dir string, files []File) (staged []stagedFile, report Report, err error) {
	for _, f := range files {
		s, changed, err := stage(dir, f)
		if err != nil {
			return staged, report, err
		}
		if !changed {
			report.Kept++
			continue
		}
		staged = append(staged, s)
		report.Written = append(report.Written, f.Path)
	}
	return staged, report, nil
}

// missing are the entries of a manifest that files lacks.
func missing(old Manifest, files []File) []Entry {
	return slices.DeleteFunc(slices.Clone(old.Files), func(e Entry) bool {
		return slices.ContainsFunc(files, func(f File) bool { return f.Path == e.Path })
	})
}

// stagedFile is a file that is complete but not in place yet.
type stagedFile struct{ temporary, target string }

// stage writes a file beside its place unless it is there already.
func stage(dir string, f File) (stagedFile, bool, error) {
	target := filepath.Join(dir, filepath.FromSlash(f.Path))
	present, err := os.ReadFile(target)
	if err == nil && bytes.Equal(present, f.Content) {
		return stagedFile{}, false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return stagedFile{}, false, err
	}
	temporary := stagedName(target)
	return stagedFile{temporary, target}, true, writeNew(temporary, f.Content)
}

// writeNew writes a file that does not exist yet.
func writeNew(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, writeErr := file.Write(content)
	if err := errors.Join(writeErr, file.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// commit puts the file into its place in one step.
func (s *stagedFile) commit() error {
	if err := os.Rename(s.temporary, s.target); err != nil {
		return err
	}
	s.temporary = ""
	return nil
}

// discard removes a file that was not put into its place.
func (s *stagedFile) discard() error {
	if s.temporary == "" {
		return nil
	}
	return os.Remove(s.temporary)
}

// writeTransition replaces the manifest by one that lists the files of manifest and gone.
func writeTransition(dir string, manifest File, gone []Entry) error {
	var m Manifest
	if err := json.Unmarshal(manifest.Content, &m); err != nil {
		return err
	}
	m.Files = append(m.Files, gone...)
	slices.SortFunc(m.Files, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	content, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return replace(dir, File{Path: ManifestName, Content: append(content, '\n')})
}

// replace puts one file into its place unless it is there already.
func replace(dir string, f File) error {
	s, changed, err := stage(dir, f)
	if err != nil || !changed {
		return err
	}
	return errors.Join(s.commit(), s.discard())
}

// remove removes a file and the folders that it leaves empty.
func remove(dir, name string) error {
	err := os.Remove(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for folder := filepath.Dir(filepath.FromSlash(name)); folder != "."; folder = filepath.Dir(folder) {
		if os.Remove(filepath.Join(dir, folder)) != nil {
			break // not empty: it stays
		}
	}
	return nil
}

// Difference is one file in which two trees differ.
type Difference struct {
	Path string
	Kind string // changed, missing or extra
}

func (d Difference) String() string { return d.Kind + ": " + d.Path }

// Compare compares a tree with the one that it should be. Every file counts, whatever made it.
func Compare(want, have fs.FS) ([]Difference, error) {
	wanted, err := contents(want)
	if err != nil {
		return nil, err
	}
	present, err := contents(have)
	if err != nil {
		return nil, err
	}
	var out []Difference
	for name, content := range wanted {
		other, ok := present[name]
		switch {
		case !ok:
			out = append(out, Difference{name, "missing"})
		case !bytes.Equal(content, other):
			out = append(out, Difference{name, "changed"})
		}
	}
	for name := range present {
		if _, ok := wanted[name]; !ok {
			out = append(out, Difference{name, "extra"})
		}
	}
	slices.SortFunc(out, func(a, b Difference) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Kind, b.Kind)) })
	return out, nil
}

// contents reads every file of a tree. A tree that does not exist is empty.
func contents(tree fs.FS) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == "." {
			return fs.SkipAll
		}
		if err != nil || entry.IsDir() {
			return err
		}
		files[name], err = fs.ReadFile(tree, name)
		return err
	})
	return files, err
}
