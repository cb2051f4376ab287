package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"

	"gopkg.in/yaml.v3"

	"github.com/fitzwire/fitz/codegen/findings"
	"github.com/fitzwire/fitz/codegen/model"
)

// Limits of one spec file.
const (
	maxFileBytes = 1 << 20
	maxDepth     = 64
)

// disk is the file system of the machine as an fs.FS that also takes absolute paths and paths that leave the current folder.
type disk struct{}

func (disk) Open(name string) (fs.File, error) { return os.Open(name) }

// source is one spec file after parsing. Root is nil when the file could not be read as YAML.
type source struct {
	path string
	kind string // schema that describes it: index, wire, bounds, …, domain
	root *yaml.Node
	text []byte // as it was read, nil when it could not be
}

// pos is the place of a node in the file.
func (s *source) pos(n *yaml.Node) model.Pos {
	if n == nil {
		return model.Pos{File: s.path}
	}
	return model.Pos{File: s.path, Line: n.Line, Col: n.Column}
}

// read reads one file and reports what is wrong with it as a YAML text. The error is for failures other than a missing file.
func read(fsys fs.FS, path, kind string, asked model.Pos, list *findings.List) (*source, error) {
	s := &source{path: path, kind: kind}
	text, err := readLimited(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		list.Add(asked, FileMissing, fmt.Sprintf("the file %s does not exist", path), "add it or correct its name")
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	s.text = text
	s.parse(text, list)
	return s, nil
}

// readLimited reads at most one byte more than a spec file may have, so that a huge file is refused and never held.
func readLimited(fsys fs.FS, path string) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	return text, errors.Join(err, f.Close())
}

// parse fills root from the text of one file.
func (s *source) parse(text []byte, list *findings.List) {
	start := model.Pos{File: s.path, Line: 1, Col: 1}
	if len(text) > maxFileBytes {
		list.Add(start, FileTooLarge, "the file is larger than 1 MiB", "split it")
		return
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		list.Add(start, YAMLEmpty, "the file holds no document", "write one")
		return
	case err != nil:
		s.syntax(err, list)
		return
	}
	s.root = doc.Content[0]
	h := hygiene{source: s, list: list}
	h.check(s.root, 1)
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		s.syntax(err, list)
	default:
		list.Add(s.pos(&second), YAMLDocuments, "a second document starts here", "keep one document in a file")
	}
	if h.deep {
		s.root = nil // nothing below looks at a tree that deep
	}
}

// yamlLine finds the line in a message of the YAML library, which has no typed position.
var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

func (s *source) syntax(err error, list *findings.List) {
	text, line := err.Error(), 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1]) // digits by the expression; an overflow leaves the largest int, which is a place as good as any
		text = text[len(m[0]):]
	}
	list.Add(model.Pos{File: s.path, Line: line, Col: 1}, YAMLSyntax, "this is not YAML: "+text, "correct the text")
}

// Disk returns the file system of the machine, for names as the operating system understands them.
func Disk() fs.FS { return disk{} }
