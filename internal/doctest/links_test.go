package doctest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// skippedFolders hold no documents of this tree: tools, what is built, and trees that are fixtures.
var skippedFolders = []string{".git", ".task", "bin", "dist", "spec/badspecs/_base"}

// pages are the names of all Markdown files of a tree.
func pages(tree fs.FS) (names []string, err error) {
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(skippedFolders, name):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(name, ".md"):
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// brokenLinks says which links of the Markdown files of a tree lead nowhere, and how many it looked at.
func brokenLinks(tree fs.FS) (problems []string, looked int, err error) {
	names, err := pages(tree)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return nil, 0, err
		}
		for _, l := range Links(string(text)) {
			looked++
			problem, err := brokenLink(tree, name, l)
			if err != nil {
				return nil, 0, err
			}
			if problem != "" {
				problems = append(problems, fmt.Sprintf("%s:%d: %s", name, l.Line, problem))
			}
		}
	}
	return problems, looked, nil
}

// brokenLink says why a link of the named document leads nowhere, "" when it leads somewhere.
func brokenLink(tree fs.FS, name string, l Link) (string, error) {
	target := name
	if l.Target != "" {
		target = path.Join(path.Dir(name), l.Target)
	}
	if !fs.ValidPath(target) {
		return fmt.Sprintf("%s leads out of the tree", l.Target), nil
	}
	info, err := fs.Stat(tree, target)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("there is no %s", target), nil
	}
	if err != nil || l.Anchor == "" {
		return "", err
	}
	if info.IsDir() || !strings.HasSuffix(target, ".md") {
		return fmt.Sprintf("%s has no anchors", target), nil
	}
	text, err := fs.ReadFile(tree, target)
	if err == nil && !Anchors(string(text))[l.Anchor] {
		return fmt.Sprintf("%s has no heading #%s", target, l.Anchor), nil
	}
	return "", err
}

// Every relative link and every anchor of every Markdown file leads somewhere.
func TestLinks(t *testing.T) {
	problems, looked, err := brokenLinks(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	if looked < 50 {
		t.Errorf("only %d links", looked)
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	tree := fstest.MapFS{
		"a.md": {Data: []byte("# A `b` [c](b/c.md)!\n\n## Same\n\n## Same\n<a id=\"x-1\"></a>\n[in code](`no.md`) `[no](no.md)`\n```md\n[no](no.md)\n# Hidden\n```\n" +
			"[1](#a-b-c) [2](b/c.md#d) [3](#same-1) [4](#x-1) [5](https://example.org/no.md#no) [6](b) [7](mailto:a@example.org)\n" +
			"[8](no.md) [9](#hidden) [10](b/c.md#e) [11](../out.md) ![12](no.svg) <img src=\"gone.svg\"> [13](b#d)\n")},
		"b/c.md":              {Data: []byte("# D\n[back](../a.md#same) [here](c.md)\n")},
		".git/x.md":           {Data: []byte("[no](no.md)")},
		"spec/badspecs/_base": {Mode: fs.ModeDir},
	}
	got, looked, err := brokenLinks(tree)
	want := []string{
		"a.md:13: there is no no.md", "a.md:13: a.md has no heading #hidden", "a.md:13: b/c.md has no heading #e", "a.md:13: ../out.md leads out of the tree",
		"a.md:13: there is no no.svg", "a.md:13: b has no anchors", "a.md:13: there is no gone.svg",
	}
	if err != nil || !slices.Equal(got, want) || looked < len(want) {
		t.Errorf("%d links, %v\n%s", looked, err, strings.Join(got, "\n"))
	}
}
