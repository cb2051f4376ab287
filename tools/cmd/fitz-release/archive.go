package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// file is a file of an archive.
type file struct {
	name    string // with slashes, below the folder of the archive
	mode    int64  // permission bits
	content []byte
}

// Permissions of what is handed out.
const (
	modeProgram = 0o755
	modeFile    = 0o644
	modeSecret  = 0o700 // folder of secrets
)

// ordered sorts files by name, so that their order does not depend on how they were found.
func ordered(files []file) []file {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files
}

// packed is an archive of files in the format that its name asks for.
func packed(name string, files []file, made time.Time) ([]byte, error) {
	var b bytes.Buffer
	var err error
	switch {
	case strings.HasSuffix(name, ".zip"):
		err = writeZip(&b, files, made)
	case strings.HasSuffix(name, ".tar.gz"):
		err = writeTarGz(&b, files, made)
	default:
		err = fmt.Errorf("%s: no format goes by this name", name)
	}
	return b.Bytes(), err
}

// writeTarGz writes files with one owner and one time. The header of gzip has neither name nor time.
func writeTarGz(w io.Writer, files []file, made time.Time) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, f := range ordered(files) {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: made, Uname: "root", Gname: "root",
			Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

func writeZip(w io.Writer, files []file, made time.Time) error {
	archive := zip.NewWriter(w)
	for _, f := range ordered(files) {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: made}
		header.SetMode(fs.FileMode(f.mode))
		entry, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// unpacked reads an archive, or only lists what a name without a known format has.
func unpacked(name string, content []byte) ([]file, error) {
	switch {
	case strings.HasSuffix(name, ".zip"):
		return readZip(content)
	case strings.HasSuffix(name, ".tar.gz"):
		return readTarGz(content)
	}
	return nil, fmt.Errorf("%s: no format goes by this name", name)
}

func readTarGz(content []byte) ([]file, error) {
	compressed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	archive := tar.NewReader(compressed)
	var files []file
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		files = append(files, file{header.Name, header.Mode, text})
	}
}

func readZip(content []byte) ([]file, error) {
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, err
	}
	var files []file
	for _, entry := range archive.File {
		r, err := entry.Open()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		files = append(files, file{entry.Name, int64(entry.Mode().Perm()), text})
	}
	return files, nil
}

// below puts files into a folder.
func below(folder string, files []file) []file {
	moved := slices.Clone(files)
	for i := range moved {
		slash := strings.HasSuffix(moved[i].name, "/")
		moved[i].name = path.Join(folder, moved[i].name)
		if slash {
			moved[i].name += "/"
		}
	}
	return moved
}
