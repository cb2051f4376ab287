package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// checksumsFile names every other file of a release, in the form of sha256sum.
const checksumsFile = "SHA256SUMS"

// makeCommand makes a release.
type makeCommand struct {
	Out         string   `default:"dist" placeholder:"DIR" help:"Folder for the archives; what stands in it is removed (default dist)."`
	Targets     []string `default:"*" placeholder:"OS/ARCH" help:"Platforms: linux/amd64, windows, */arm64 (default all)."`
	Dirty       bool     `help:"Also with changes that are not committed; the programs say so."`
	SkipRebuild bool     `help:"Do not build one platform again to see that the bytes are the same."`
}

// Run makes the release and looks at it.
func (c *makeCommand) Run(s *session) error {
	chosen, err := choose(c.Targets)
	if err != nil {
		return err
	}
	state, err := look(s.ctx, s.root)
	if err != nil {
		return err
	}
	if state.dirty() && !c.Dirty {
		return errors.New("there are changes that are not committed; commit them, or say --dirty")
	}
	host := target{runtime.GOOS, runtime.GOARCH}
	if !slices.Contains(targets, host) {
		return fmt.Errorf("a release can be made on %s, not on %s", listed(targets), host)
	}
	if err := (&noticesCommand{}).Run(s); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "fitz-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	r := &release{session: s, source: state, work: work, host: host}
	if err := r.make(chosen); err != nil {
		return err
	}
	if err := r.write(c.Out); err != nil {
		return err
	}
	if err := verify(s, c.Out, chosen, state.commit); err != nil {
		return err
	}
	if c.SkipRebuild {
		return nil
	}
	again := chosen[0]
	if slices.Contains(chosen, host) {
		again = host
	}
	return r.rebuild(again)
}

// release is one that is being made.
type release struct {
	*session
	source source
	work   string // temporary folder
	host   target
	files  []file // by name, without folders
	guides []file // manual pages and completion scripts
}

// make builds the targets and packs them.
func (r *release) make(chosen []target) error {
	native := filepath.Join(r.work, "native")
	if err := build(r.ctx, r.root, r.host, r.source.commit, "", native); err != nil {
		return err
	}
	var err error
	if r.guides, err = guides(r.ctx, r.host, native); err != nil {
		return err
	}
	for _, t := range chosen {
		began := time.Now()
		binaries := native
		if t != r.host {
			binaries = filepath.Join(r.work, t.folder())
			if err := build(r.ctx, r.root, t, r.source.commit, "", binaries); err != nil {
				return err
			}
		}
		files, err := r.pack(r.root, t, binaries)
		if err != nil {
			return err
		}
		r.files = append(r.files, files...)
		for _, f := range files {
			r.say("%s: %d bytes, %.0f s", f.name, len(f.content), time.Since(began).Seconds())
		}
	}
	suite, err := r.suite()
	if err != nil {
		return err
	}
	r.say("%s: %d bytes", suite.name, len(suite.content))
	r.files = append(r.files, suite)
	return nil
}

// programFiles reads the programs of a target.
func programFiles(t target, binaries string) ([]file, error) {
	var files []file
	for _, program := range programs {
		content, err := os.ReadFile(filepath.Join(binaries, t.executable(program)))
		if err != nil {
			return nil, err
		}
		files = append(files, file{t.executable(program), modeProgram, content})
	}
	return files, nil
}

// pack makes the archive of a target, and its Debian package where there is one.
func (r *release) pack(root string, t target, binaries string) ([]file, error) {
	built, err := programFiles(t, binaries)
	if err != nil {
		return nil, err
	}
	beside, err := read(root, besides...)
	if err != nil {
		return nil, err
	}
	content := slices.Concat(built, beside, r.guides)
	packedUp, err := packed(t.archive(), below(t.folder(), content), r.source.made)
	if err != nil {
		return nil, err
	}
	files := []file{{t.archive(), modeFile, packedUp}}
	if t.os == "linux" {
		deb, err := debian(t, content, r.source.made)
		if err != nil {
			return nil, err
		}
		files = append(files, file{debName(t), modeFile, deb})
	}
	return files, nil
}

// besides stand beside the programs in every archive.
var besides = []string{"LICENSE", "NOTICE", noticesFile, "README.md", sampleConfig, serviceUnit}

// Files of the tree that have a place of their own in packages.
const (
	sampleConfig = "deploy/fitzd.yaml"
	serviceUnit  = "deploy/systemd/fitzd.service"
)

// read reads files of the tree.
func read(root string, names ...string) ([]file, error) {
	var files []file
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, modeFile, content})
	}
	return files, nil
}

// guide is a manual page or a completion script, which a program prints itself.
type guide struct {
	name, program string
	args          []string
}

var allGuides = []guide{
	{"man/fitz.1", "fitz", []string{"man"}},
	{"man/fitzd.8", "fitzd", []string{"man"}},
	{"man/fitzd.yaml.5", "fitzd", []string{"man", "5"}},
	{"completions/fitz.bash", "fitz", []string{"completion", "bash"}},
	{"completions/_fitz", "fitz", []string{"completion", "zsh"}},
	{"completions/fitz.fish", "fitz", []string{"completion", "fish"}},
	{"completions/fitzd.bash", "fitzd", []string{"completion", "bash"}},
	{"completions/_fitzd", "fitzd", []string{"completion", "zsh"}},
	{"completions/fitzd.fish", "fitzd", []string{"completion", "fish"}},
}

func guideNames() []string {
	names := make([]string, len(allGuides))
	for i, g := range allGuides {
		names[i] = g.name
	}
	return names
}

// guides are those of the platform that makes the release: the help of a flag can say what only holds on one.
func guides(ctx context.Context, host target, binaries string) ([]file, error) {
	var files []file
	for _, g := range allGuides {
		text, err := output(ctx, "", nil, filepath.Join(binaries, host.executable(g.program)), g.args...)
		if err != nil {
			return nil, err
		}
		files = append(files, file{g.name, modeFile, []byte(text + "\n")})
	}
	return files, nil
}

// suiteFolders are what fitz-conformance reads.
var suiteFolders = []string{"spec/", "conformance/scenarios/", "conformance/coverage.yaml", "conformance/known-failures.yaml", "generated/vectors/", "docs/protocol/"}

// suiteName is the folder in the archive of the conformance suite.
var suiteName = "fitz_" + version + "_suite"

// suite is the archive that fitz-conformance takes as --root where there is no source tree.
func (r *release) suite() (file, error) {
	names := []string{"LICENSE", "NOTICE"}
	for _, name := range r.source.files {
		if slices.ContainsFunc(suiteFolders, func(folder string) bool { return strings.HasPrefix(name, folder) }) &&
			!strings.HasPrefix(name, "spec/badspecs/") && !strings.HasSuffix(name, ".go") {
			names = append(names, name)
		}
	}
	files, err := read(r.root, names...)
	if err != nil {
		return file{}, err
	}
	content, err := packed(suiteName+".tar.gz", below(suiteName, files), r.source.made)
	return file{suiteName + ".tar.gz", modeFile, content}, err
}

// write replaces the content of a folder by the release and its checksums.
func (r *release) write(out string) error {
	if err := empty(out); err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, f := range ordered(r.files) {
		if err := os.WriteFile(filepath.Join(out, f.name), f.content, modeFile); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.content), f.name)
	}
	return os.WriteFile(filepath.Join(out, checksumsFile), sums.Bytes(), modeFile)
}

// empty makes a folder, or removes the files of one that holds an earlier release. It touches no other folder.
func empty(out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(out)
	if err != nil || len(entries) == 0 {
		return err
	}
	if _, err := os.Stat(filepath.Join(out, checksumsFile)); err != nil {
		return fmt.Errorf("%s is not empty and holds no release", out)
	}
	for _, entry := range entries {
		if err := os.Remove(filepath.Join(out, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// rebuild makes the archive of a target again, from a copy of the tree in another folder and with an empty cache, and compares.
func (r *release) rebuild(t target) error {
	began := time.Now()
	tree := filepath.Join(r.work, "tree")
	if err := r.source.copyTo(r.root, tree); err != nil {
		return err
	}
	binaries := filepath.Join(r.work, "again")
	if err := build(r.ctx, tree, t, r.source.commit, filepath.Join(r.work, "cache"), binaries); err != nil {
		return err
	}
	files, err := r.pack(tree, t, binaries)
	if err != nil {
		return err
	}
	if err := same(r.files, files); err != nil {
		return err
	}
	r.say("%s: the same bytes when built again from a copy, %.0f s", t.archive(), time.Since(began).Seconds())
	return nil
}

// same compares files that were made again with the first ones.
func same(first, again []file) error {
	for _, f := range again {
		at := slices.IndexFunc(first, func(other file) bool { return other.name == f.name })
		if at < 0 || !bytes.Equal(first[at].content, f.content) {
			return fmt.Errorf("%s: not the same bytes when it was made again", f.name)
		}
	}
	return nil
}
