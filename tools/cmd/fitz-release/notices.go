package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// noticesFile is committed, so that whoever reads the tree sees it, and stands in every archive.
const noticesFile = "THIRD_PARTY_NOTICES.md"

// noticesCommand compares the committed notices with the modules in use.
type noticesCommand struct {
	Write bool `help:"Write the file instead."`
}

// Run compares or writes.
func (c *noticesCommand) Run(s *session) error {
	text, err := notices(s.ctx, s.root)
	if err != nil {
		return err
	}
	name := filepath.Join(s.root, noticesFile)
	if c.Write {
		return os.WriteFile(name, []byte(text), 0o644)
	}
	committed, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if string(committed) != text {
		return fmt.Errorf("%s does not fit the modules in use; ./task gen:notices writes it", noticesFile)
	}
	return nil
}

// part is somebody else's work in the programs, with the texts that must go with it.
type part struct {
	name, version string
	texts         []licenceText
}

// licenceText is one file.
type licenceText struct {
	name, text string
	ids        []string // none for a notice
}

// listed is what the Go tool tells of a package.
type listedPackage struct {
	ImportPath string
	Dir        string
	Standard   bool
	Module     *struct {
		Path, Version, Dir string
		Main               bool
		Replace            *struct{ Path string }
	}
}

// notices is the text of the notices file: everything that is linked into a program of any target.
func notices(ctx context.Context, root string) (string, error) {
	packages, err := linked(ctx, root)
	if err != nil {
		return "", err
	}
	goroot, err := output(ctx, root, nil, "go", "env", "GOROOT")
	if err != nil {
		return "", err
	}
	parts, err := partsOf(packages)
	if err != nil {
		return "", err
	}
	std := part{name: "Go standard library and runtime"}
	if std.texts, err = texts(goroot, goroot); err != nil {
		return "", fmt.Errorf("standard library of Go: %w", err)
	}
	return written(append([]part{std}, parts...)), nil
}

// linked are the packages of others in the programs, for all targets together.
func linked(ctx context.Context, root string) ([]listedPackage, error) {
	var mu sync.Mutex
	found := map[string]listedPackage{}
	var wrong []error
	var running sync.WaitGroup
	places := make(chan struct{}, runtime.NumCPU())
	for _, t := range targets {
		running.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			packages, err := linkedFor(ctx, root, t)
			mu.Lock()
			defer mu.Unlock()
			wrong = append(wrong, err)
			for _, p := range packages {
				found[p.ImportPath] = p
			}
		})
	}
	running.Wait()
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	var all []listedPackage
	for _, p := range found {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b listedPackage) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	return all, nil
}

func linkedFor(ctx context.Context, root string, t target) ([]listedPackage, error) {
	args := []string{"list", "-deps", "-json=ImportPath,Dir,Standard,Module"}
	for _, program := range programs {
		args = append(args, "./"+program)
	}
	text, err := output(ctx, root, t.environment(""), "go", args...)
	if err != nil {
		return nil, err
	}
	var all []listedPackage
	for decoder := json.NewDecoder(strings.NewReader(text)); ; {
		var p listedPackage
		if err := decoder.Decode(&p); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if !p.Standard && p.Module != nil && !p.Module.Main {
			all = append(all, p)
		}
	}
}

// partsOf collects the licence files of modules, and those that stand deeper, beside packages that are linked: code that a module has taken over.
func partsOf(packages []listedPackage) ([]part, error) {
	byModule := map[string]*part{}
	seen := map[string]bool{}
	var wrong []error
	for _, p := range packages {
		m := p.Module
		if m.Replace != nil {
			return nil, fmt.Errorf("%s is replaced: nobody could build the same from its version", m.Path)
		}
		if byModule[m.Path] == nil {
			byModule[m.Path] = &part{name: m.Path, version: m.Version}
			if found, err := texts(m.Dir, m.Dir); err != nil {
				wrong = append(wrong, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
			} else {
				byModule[m.Path].texts = found
			}
		}
		for dir := p.Dir; dir != m.Dir && len(dir) > len(m.Dir) && !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			deeper, err := texts(m.Dir, dir)
			if err != nil && !errors.Is(err, errNoLicence) {
				wrong = append(wrong, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
			}
			byModule[m.Path].texts = append(byModule[m.Path].texts, deeper...)
		}
	}
	var parts []part
	for _, p := range byModule {
		slices.SortStableFunc(p.texts, func(a, b licenceText) int { return cmp.Compare(strings.Count(a.name, "/"), strings.Count(b.name, "/")) })
		parts = append(parts, *p)
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.name, b.name) })
	return parts, errors.Join(wrong...)
}

var (
	licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)`)
	noticeName  = regexp.MustCompile(`(?i)^notice(\.(txt|md))?$`)
	sourceName  = regexp.MustCompile(`(?i)\.(go|s|c|h)$`)
)

var errNoLicence = errors.New("no licence file")

// texts are the licence and notice files of a folder. Each licence must be one that is known, and one must be there.
func texts(module, dir string) ([]licenceText, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []licenceText
	licensed := false
	for _, entry := range entries {
		isLicence, isNotice := licenceName.MatchString(entry.Name()), noticeName.MatchString(entry.Name())
		if entry.IsDir() || sourceName.MatchString(entry.Name()) || !isLicence && !isNotice {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		inside, err := filepath.Rel(module, filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		text := licenceText{name: filepath.ToSlash(inside), text: string(content)}
		if isLicence {
			licensed = true
			if text.ids, err = identify(text.text); err != nil {
				return nil, fmt.Errorf("%s: %w", text.name, err)
			}
		}
		found = append(found, text)
	}
	if !licensed {
		return nil, errNoLicence
	}
	return found, nil
}

// written is the file: a table, then every text as it stands.
func written(parts []part) string {
	var b bytes.Buffer
	b.WriteString("# Third-party notices\n\nThe programs of Fitz contain the software below. `./task gen:notices` makes this file from the modules that are linked into " +
		"a program of any platform.\n\n| part | version | licences |\n|---|---|---|\n")
	for _, p := range parts {
		var ids []string
		for _, text := range p.texts {
			for _, id := range text.ids {
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", p.name, p.version, strings.Join(ids, ", "))
	}
	for _, p := range parts {
		fmt.Fprintf(&b, "\n## %s\n", strings.TrimSpace(p.name+" "+p.version))
		for _, text := range p.texts {
			fmt.Fprintf(&b, "\n`%s`\n\n", path.Clean(text.name))
			for line := range strings.Lines(strings.TrimRight(text.text, "\n") + "\n") {
				b.WriteString(strings.TrimRight("    "+strings.TrimRight(line, "\r\n"), " \t") + "\n")
			}
		}
	}
	return b.String()
}
