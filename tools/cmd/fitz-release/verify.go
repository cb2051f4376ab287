package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// verifyCommand looks at a release that was made before.
type verifyCommand struct {
	Dir     string   `arg:"" default:"dist" help:"Folder of the release."`
	Targets []string `default:"*" placeholder:"OS/ARCH" help:"Platforms that must be there (default all)."`
	Commit  string   `help:"Commit that the programs must print (default: any)." placeholder:"COMMIT"`
}

// Run looks at the release.
func (c *verifyCommand) Run(s *session) error {
	chosen, err := choose(c.Targets)
	if err != nil {
		return err
	}
	return verify(s, c.Dir, chosen, c.Commit)
}

// verify opens everything: checksums, content of every archive, kind of every program; and runs the programs of this platform.
func verify(s *session, dir string, chosen []target, commit string) error {
	contents, err := checked(dir)
	if err != nil {
		return err
	}
	suite, err := unpacked(suiteName+".tar.gz", contents[suiteName+".tar.gz"])
	if err != nil {
		return fmt.Errorf("suite: %w", err)
	}
	for _, t := range chosen {
		if err := verifyTarget(s, contents, t, suite, commit); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	return nil
}

// checked reads all files that the checksums name, compares, and looks for others.
func checked(dir string) (map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, checksumsFile))
	if err != nil {
		return nil, err
	}
	contents := map[string][]byte{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		sum, name, found := strings.Cut(lines.Text(), "  ")
		if !found || name != filepath.Base(name) {
			return nil, fmt.Errorf("%s: line %q", checksumsFile, lines.Text())
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if sum != fmt.Sprintf("%x", sha256.Sum256(content)) {
			return nil, fmt.Errorf("%s: the checksum is another", name)
		}
		contents[name] = content
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if contents[entry.Name()] == nil && entry.Name() != checksumsFile {
			return nil, fmt.Errorf("%s has no checksum", entry.Name())
		}
	}
	return contents, nil
}

func verifyTarget(s *session, contents map[string][]byte, t target, suite []file, commit string) error {
	files, err := unpacked(t.archive(), contents[t.archive()])
	if err != nil {
		return err
	}
	if err := verifyFiles(t, files); err != nil {
		return err
	}
	ran := "not run on this platform"
	if t == (target{runtime.GOOS, runtime.GOARCH}) {
		lines, err := runs(s, t, slices.Concat(files, suite), commit)
		if err != nil {
			return err
		}
		ran = strings.Join(lines, "; ")
	}
	s.say("%s: %d files, programs static and for the platform; %s", t.archive(), len(files), ran)
	if t.os != "linux" {
		return nil
	}
	if err := verifyDebian(contents[debName(t)], t, files); err != nil {
		return fmt.Errorf("%s: %w", debName(t), err)
	}
	s.say("%s: as dpkg wants it", debName(t))
	return nil
}

// verifyFiles looks at names, permissions and programs of an archive.
func verifyFiles(t target, files []file) error {
	byName := map[string]file{}
	for _, f := range files {
		if !strings.HasPrefix(f.name, t.folder()+"/") || f.name != path.Clean(f.name) {
			return fmt.Errorf("%s stands outside of the folder", f.name)
		}
		byName[strings.TrimPrefix(f.name, t.folder()+"/")] = f
	}
	wanted := append(slices.Clone(besides), guideNames()...)
	for _, program := range programs {
		name := t.executable(program)
		wanted = append(wanted, name)
		if f, found := byName[name]; found && f.mode != modeProgram {
			return fmt.Errorf("%s: permissions %o", name, f.mode)
		}
	}
	missing := slices.DeleteFunc(wanted, func(name string) bool { return len(byName[name].content) > 0 })
	if len(missing) > 0 {
		return fmt.Errorf("without %s", strings.Join(missing, ", "))
	}
	for _, program := range programs {
		if err := verifyProgram(t, program, byName[t.executable(program)].content); err != nil {
			return fmt.Errorf("%s: %w", t.executable(program), err)
		}
	}
	return nil
}

// verifyProgram looks at what the Go tool noted and at the format.
func verifyProgram(t target, program string, content []byte) error {
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return err
	}
	if want := "github.com/fitzwire/fitz/" + program; info.Path != want {
		return fmt.Errorf("it is %s", info.Path)
	}
	for key, want := range map[string]string{"GOOS": t.os, "GOARCH": t.arch, "CGO_ENABLED": "0", "-trimpath": "true"} {
		at := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == key })
		if at < 0 || info.Settings[at].Value != want {
			return fmt.Errorf("it was not built with %s=%s", key, want)
		}
	}
	switch t.os {
	case "linux":
		return staticELF(content, t.arch)
	case "darwin":
		return machO(content, t.arch)
	}
	return portable(content, t.arch)
}

// staticELF wants a program that asks for no loader and no library.
func staticELF(content []byte, arch string) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return err
	}
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; f.Machine != want {
		return fmt.Errorf("it is for %s", f.Machine)
	}
	for _, segment := range f.Progs {
		if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
			return errors.New("it is linked dynamically")
		}
	}
	return nil
}

// machO wants no library beside those of the system, which every program of macOS has to use.
func machO(content []byte, arch string) error {
	f, err := macho.NewFile(bytes.NewReader(content))
	if err != nil {
		return err
	}
	if want := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[arch]; f.Cpu != want {
		return fmt.Errorf("it is for %s", f.Cpu)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, library := range libraries {
		if !strings.HasPrefix(library, "/usr/lib/") && !strings.HasPrefix(library, "/System/Library/") {
			return fmt.Errorf("it needs %s", library)
		}
	}
	return nil
}

func portable(content []byte, arch string) error {
	f, err := pe.NewFile(bytes.NewReader(content))
	if err != nil {
		return err
	}
	if want := map[string]uint16{"amd64": pe.IMAGE_FILE_MACHINE_AMD64, "arm64": pe.IMAGE_FILE_MACHINE_ARM64}[arch]; f.Machine != want {
		return fmt.Errorf("it is for machine %#x", f.Machine)
	}
	return nil
}

// runs unpacks an archive and the suite, runs every program and returns what they say about themselves. fitzgen tells of the specification that it
// finds below its folder, which is that of the suite.
func runs(s *session, t target, files []file, commit string) ([]string, error) {
	dir, err := os.MkdirTemp("", "fitz-release-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := unpackTo(dir, files); err != nil {
		return nil, err
	}
	call := func(program string, args ...string) (string, error) {
		return output(s.ctx, filepath.Join(dir, suiteName), nil, filepath.Join(dir, t.folder(), t.executable(program)), args...)
	}
	var lines []string
	for _, program := range programs {
		line, err := call(program, "version")
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(line, fmt.Sprintf("%s %s (commit %s", path.Base(program), version, commit)) {
			return nil, fmt.Errorf("%s says %q, want version %s and commit %s", path.Base(program), line, version, commit)
		}
		lines = append(lines, line)
	}
	if _, err := call("fitzd", "--check-config", "--config", filepath.Join(dir, t.folder(), filepath.FromSlash(sampleConfig))); err != nil {
		return nil, err
	}
	cases, err := call("fitz-conformance", "list")
	if err != nil {
		return nil, err
	}
	return append(lines, fmt.Sprintf("%d lines of conformance cases", strings.Count(cases, "\n")+1)), nil
}

func unpackTo(dir string, files []file) error {
	for _, f := range files {
		if !filepath.IsLocal(filepath.FromSlash(f.name)) {
			return fmt.Errorf("%s stands outside of the archive", f.name)
		}
		name := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, f.content, os.FileMode(f.mode)); err != nil {
			return err
		}
	}
	return nil
}

// verifyDebian compares a package with the archive of its target, and asks dpkg-deb where it is installed.
func verifyDebian(content []byte, t target, archive []file) error {
	parts, err := members(content)
	if err != nil {
		return err
	}
	if len(parts) != 3 || parts[0].name != "debian-binary" || string(parts[0].content) != "2.0\n" {
		return errors.New("it has other members than a Debian package")
	}
	data, err := readTarGz(parts[2].content)
	if err != nil {
		return err
	}
	for _, program := range []string{"fitzd", "fitz"} {
		inArchive := slices.IndexFunc(archive, func(f file) bool { return f.name == path.Join(t.folder(), program) })
		inPackage := slices.IndexFunc(data, func(f file) bool { return f.name == "./"+debPlaces[program] })
		if inArchive < 0 || inPackage < 0 || !bytes.Equal(archive[inArchive].content, data[inPackage].content) {
			return fmt.Errorf("%s is another than in the archive", program)
		}
	}
	tool, err := exec.LookPath("dpkg-deb")
	if err != nil {
		return nil // what it would look at was looked at above
	}
	list := exec.Command(tool, "--contents", "/dev/stdin")
	list.Stdin = bytes.NewReader(content)
	if out, err := list.CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg-deb: %w\n%s", err, out)
	}
	return nil
}
