package overlay

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Edit applies a text of edits to the files below a folder. The form is that of a small diff:
//
//	# a comment
//	@ domains/toy.yaml      the file that the following lines change
//	- old lines             which stand there exactly once, one behind the other
//	+ new lines             in their place; without old lines they are appended, to a new file too
//	+*3 line                the same line three times
//	@- domains/toy.yaml     the file is removed
//
// A block of old and new lines ends where old lines follow new ones, or at an empty line.
func (o *FS) Edit(dir, edits string) error {
	var block change
	flush := func() error {
		err := o.apply(dir, block)
		block = change{file: block.file}
		return err
	}
	for n, line := range strings.Split(edits, "\n") {
		mark, rest, _ := strings.Cut(line, " ")
		ends := line == "" || mark[0] == '@' || mark == "-" && len(block.added) > 0
		if ends {
			if err := flush(); err != nil {
				return fmt.Errorf("line %d: %w", n+1, err)
			}
		}
		if err := o.line(dir, mark, rest, &block); err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return flush()
}

// change is one block of an edit.
type change struct {
	file           string
	removed, added []string
}

// line takes one line of an edit.
func (o *FS) line(dir, mark, rest string, block *change) error {
	switch {
	case mark == "" || mark[0] == '#':
	case mark == "@":
		block.file = rest
	case mark == "@-":
		o.Remove(path.Join(dir, rest))
	case mark == "-":
		block.removed = append(block.removed, rest)
	case mark == "+":
		block.added = append(block.added, rest)
	case strings.HasPrefix(mark, "+*"):
		n, err := strconv.Atoi(mark[2:])
		if err != nil {
			return err
		}
		for range n {
			block.added = append(block.added, rest)
		}
	default:
		return fmt.Errorf("%q starts no edit", mark)
	}
	return nil
}

// apply replaces the removed lines of a block by the added ones.
func (o *FS) apply(dir string, block change) error {
	if len(block.removed)+len(block.added) == 0 {
		return nil
	}
	name := path.Join(dir, block.file)
	text, err := fs.ReadFile(o, name)
	if err != nil && len(block.removed) > 0 {
		return err
	}
	old, added := lines(block.removed), lines(block.added)
	if len(block.removed) == 0 {
		o.Put(name, append(text, added...))
		return nil
	}
	if n := strings.Count("\n"+string(text), "\n"+old); n != 1 {
		return fmt.Errorf("%s has the removed lines %d times", name, n)
	}
	o.Put(name, []byte(strings.Replace("\n"+string(text), "\n"+old, "\n"+added, 1)[1:]))
	return nil
}

// lines is lines with their ends.
func lines(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, "\n") + "\n"
}
