package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../../.."

var someDay = time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC) // even seconds: the format of zip knows no others

// The notices are those of the modules in use, each of which has a licence that is known.
func TestNoticesFitTheModules(t *testing.T) {
	var out bytes.Buffer
	if err := (&noticesCommand{}).Run(&session{ctx: t.Context(), root: root, out: &out}); err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile(filepath.Join(root, noticesFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Go standard library", "github.com/alecthomas/kong", "github.com/prometheus/client_golang", "internal/github.com/golang/gddo/LICENSE"} {
		if !bytes.Contains(committed, []byte(name)) {
			t.Errorf("the notices do not name %s", name)
		}
	}
}

func TestIdentify(t *testing.T) {
	mit := "Copyright (c) 2020 Somebody\n\nPermission is hereby granted, free of charge, to any person obtaining a copy of this software and associated " +
		"documentation\nfiles (the \"Software\"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, " +
		"merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, " +
		"subject to the following conditions:\n\nThe above copyright notice and this permission notice shall be included in all copies or substantial " +
		"portions of the Software.\n"
	two := "Redistribution and use in source and binary forms, with or without modification, are permitted provided that the following conditions are met:\n" +
		"1. Redistributions of source code must retain the above copyright notice, this list of conditions and the following disclaimer.\n" +
		"2. Redistributions in binary form must reproduce the above copyright notice, this list of conditions and the following disclaimer in the " +
		"documentation and/or other materials provided with the distribution.\n"
	three := two + "3. Neither the name of X nor the names of its contributors may be used to endorse or promote products derived from this software " +
		"without specific prior written permission.\n"
	own, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		mit: {"MIT"}, two: {"BSD-2-Clause"}, three: {"BSD-3-Clause"}, string(own): {"Apache-2.0"}, string(own) + mit: {"Apache-2.0", "MIT"},
		"Permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted, provided that the above " +
			"copyright notice and this permission notice appear in all copies.": {"ISC"},
		strings.Replace(mit, "sell copies", "not sell copies", 1):  nil,
		mit + "or, at your option, the GNU General Public License": nil,
		"All rights reserved.": nil,
		"":                     nil,
		strings.Replace(two, "are permitted", "are forbidden", 1):   nil,
		"Licensed under the MIT license, which somebody left out\n": nil,
	} {
		got, err := identify(text)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%.60q: %q, %v; want %q", text, got, err, want)
		}
	}
}

// modules are folders as the Go tool would list them.
func modules(t *testing.T, files map[string]string) (dir string, packages func(module string, inside ...string) []listedPackage) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func(module string, inside ...string) []listedPackage {
		var all []listedPackage
		for _, name := range inside {
			p := listedPackage{ImportPath: module + "/" + name, Dir: filepath.Join(dir, module, name)}
			if err := os.MkdirAll(p.Dir, 0o755); err != nil {
				t.Fatal(err)
			}
			p.Module = &struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Path string }
			}{Path: module, Version: "v1", Dir: filepath.Join(dir, module)}
			all = append(all, p)
		}
		return all
	}
}

func TestPartsOfModules(t *testing.T) {
	const isc = "Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted, provided that the " +
		"above copyright notice and this permission notice appear in all copies."
	_, packages := modules(t, map[string]string{
		"good/LICENSE": isc, "good/NOTICE.txt": "of good", "good/license.go": "package good", "good/third/party/COPYING": isc + " third",
		"none/README": "nothing", "odd/LICENSE": "Ask me first.", "taken/LICENSE": isc, "taken/in/LICENCE": "Ask somebody else.",
	})
	parts, err := partsOf(packages("good", "", "third/party/pkg", "third/party"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, text := range parts[0].texts {
		names = append(names, text.name)
	}
	if want := []string{"LICENSE", "NOTICE.txt", "third/party/COPYING"}; len(parts) != 1 || !slices.Equal(names, want) {
		t.Errorf("%d parts with %q, want %q", len(parts), names, want)
	}
	text := written(parts)
	for _, want := range []string{"| good | v1 | ISC |", "## good v1", "    of good\n", " third\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for module, want := range map[string]string{"none": "no licence file", "odd": "LICENSE: it has the terms of no licence", "taken": "in/LICENCE"} {
		if _, err := partsOf(packages(module, "in")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", module, err, want)
		}
	}
	replaced := packages("good", "")
	replaced[0].Module.Replace = &struct{ Path string }{"elsewhere"}
	if _, err := partsOf(replaced); err == nil {
		t.Error("a replaced module was taken")
	}
}

func TestChoose(t *testing.T) {
	for names, want := range map[string]string{
		"*":                         listed(targets),
		"windows":                   "windows/amd64, windows/arm64",
		"*/arm64":                   "linux/arm64, darwin/arm64, windows/arm64",
		"linux/arm64 linux/amd64":   "linux/amd64, linux/arm64",
		"linux linux/amd64":         "linux/amd64, linux/arm64",
		"plan9/mips":                "",
		"linux plan9":               "",
		"linux/[":                   "",
		"darwin/amd64 windows/a*64": "darwin/amd64, windows/amd64, windows/arm64",
	} {
		got, err := choose(strings.Fields(names))
		if (err == nil) != (want != "") || err == nil && listed(got) != want {
			t.Errorf("%s: %s, %v; want %s", names, listed(got), err, want)
		}
	}
}

// What is packed is unpacked, in order of names, and does not depend on the order it came in.
func TestArchivesAreReproducible(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		byName := rapid.MapOf(rapid.StringMatching(`[a-z]{1,5}(/[a-z]{1,5}){0,2}\.x`), rapid.SliceOfN(rapid.Byte(), 0, 200)).Draw(rt, "files")
		var files []file
		for name, content := range byName {
			files = append(files, file{name, rapid.SampledFrom([]int64{modeFile, modeProgram}).Draw(rt, "mode"), content})
		}
		files = ordered(files)
		shuffled := rapid.Permutation(files).Draw(rt, "order")
		for _, name := range []string{"a.zip", "a.tar.gz"} {
			first, err := packed(name, files, someDay)
			if err != nil {
				rt.Fatal(err)
			}
			again, err := packed(name, shuffled, someDay)
			if err != nil || !bytes.Equal(first, again) {
				rt.Fatalf("%s: other bytes, %v", name, err)
			}
			got, err := unpacked(name, first)
			if err != nil {
				rt.Fatal(err)
			}
			same := slices.EqualFunc(files, got, func(a, b file) bool { return a.name == b.name && a.mode == b.mode && bytes.Equal(a.content, b.content) })
			if !same {
				rt.Fatalf("%s: %v, want %v", name, got, files)
			}
		}
	})
	if _, err := packed("a.rar", nil, someDay); err == nil {
		t.Error("an unknown format was packed")
	}
}

// archiveFiles are what an archive of a target holds, with a text in place of every program.
func archiveFiles(t target) []file {
	var files []file
	for _, program := range programs {
		files = append(files, file{t.executable(program), modeProgram, []byte("program " + program)})
	}
	for _, name := range besides {
		files = append(files, file{name, modeFile, []byte("text of " + name)})
	}
	for _, name := range guideNames() {
		files = append(files, file{name, modeFile, []byte("guide " + name + "\n")})
	}
	return files
}

func TestDebianPackage(t *testing.T) {
	linux := target{"linux", "arm64"}
	content, err := debian(linux, archiveFiles(linux), someDay)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := debian(linux, archiveFiles(linux), someDay); err != nil || !bytes.Equal(content, again) {
		t.Errorf("other bytes when made again: %v", err)
	}
	if err := verifyDebian(content, linux, below(linux.folder(), archiveFiles(linux))); err != nil {
		t.Error(err)
	}
	others := archiveFiles(linux)
	others[0].content = []byte("another")
	if err := verifyDebian(content, linux, below(linux.folder(), others)); err == nil {
		t.Error("a package with another program was taken")
	}
	if _, err := debian(linux, archiveFiles(linux)[1:], someDay); err == nil {
		t.Error("a package without fitzd was made")
	}
	parts, err := members(content)
	if err != nil {
		t.Fatal(err)
	}
	control, err := readTarGz(parts[1].content)
	if err != nil || !strings.Contains(string(control[1].content), "/etc/fitz/fitzd.yaml\n") && !strings.Contains(string(control[0].content), "/etc/fitz/fitzd.yaml\n") {
		t.Errorf("the configuration is no conffile: %v, %v", control, err)
	}
	tool, err := exec.LookPath("dpkg-deb")
	if err != nil {
		t.Skip("dpkg-deb is not installed: the package is not read by it here")
	}
	path := filepath.Join(t.TempDir(), "fitz.deb")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"Architecture: arm64": {"--info", path},
		"drwx------ root/root         0 2026-01-02 03:04 ./etc/fitz/credentials/": {"--contents", path},
		"-rwxr-xr-x root/root":                   {"--contents", path},
		"./usr/lib/systemd/system/fitzd.service": {"--contents", path},
	} {
		command := exec.CommandContext(t.Context(), tool, args...)
		command.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=C")
		if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v, no %q in\n%s", args, err, want, out)
		}
	}
	into := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), tool, "--extract", path, into).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(into, "etc/fitz/fitzd.yaml")); err != nil || string(text) != "text of "+sampleConfig {
		t.Errorf("%q, %v", text, err)
	}
}

func TestBrokenPackages(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(arMagic)
	writeMember(&b, file{"a", modeFile, []byte("odd")}, someDay)
	writeMember(&b, file{"b", modeFile, []byte("even")}, someDay)
	whole := b.Bytes()
	if parts, err := members(whole); err != nil || len(parts) != 2 || string(parts[0].content) != "odd" || string(parts[1].content) != "even" {
		t.Fatalf("%v, %v", parts, err)
	}
	for _, broken := range [][]byte{nil, []byte("!<arch>"), whole[:len(arMagic)+30], whole[:len(whole)-1], append([]byte(arMagic), bytes.Repeat([]byte{'9'}, 60)...)} {
		if parts, err := members(broken); err == nil {
			t.Errorf("%q: %v", broken, parts)
		}
	}
}

// small builds a program of a few lines in place of the real ones and returns it.
func small(t *testing.T, to target, flags ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":              "module github.com/fitzwire/fitz\n\ngo 1.25\n",
		programs[0] + "/m.go": "package main\n\nimport \"os\"\n\nfunc main() { println(len(os.Args)) }\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := append(append([]string{"build"}, flags...), "-ldflags", linker("abc"), "-o", "program", "./"+programs[0])
	if _, err := output(t.Context(), dir, to.environment(""), "go", args...); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A program is looked at: where it is for, and how it was built.
func TestVerifyProgram(t *testing.T) {
	host := target{runtime.GOOS, runtime.GOARCH}
	if !slices.Contains(targets, host) {
		t.Skipf("%s is no platform of a release", host)
	}
	program := small(t, host, "-trimpath")
	if err := verifyProgram(host, programs[0], program); err != nil {
		t.Error(err)
	}
	if again := small(t, host, "-trimpath"); !bytes.Equal(program, again) {
		t.Error("the same source in two folders gives two programs")
	}
	if err := verifyProgram(host, programs[1], program); err == nil || !strings.Contains(err.Error(), programs[0]) {
		t.Errorf("fitzd was taken for fitz: %v", err)
	}
	for _, other := range targets {
		if err := verifyProgram(other, programs[0], program); other != host && err == nil {
			t.Errorf("it was taken for one of %s", other)
		}
	}
	if err := verifyProgram(host, programs[0], small(t, host)); err == nil || !strings.Contains(err.Error(), "-trimpath") {
		t.Errorf("paths of this machine are in it: %v", err)
	}
	if err := verifyProgram(host, programs[0], []byte("text")); err == nil {
		t.Error("a text was taken for a program")
	}
	if self, err := os.ReadFile("/bin/sh"); err == nil && host.os == "linux" {
		if err := staticELF(self, host.arch); err == nil || !strings.Contains(err.Error(), "dynamically") {
			t.Errorf("/bin/sh: %v", err)
		}
	}
}

// An archive without one of its files, with a file outside of its folder or with something that is no program is noticed.
func TestVerifyFiles(t *testing.T) {
	windows := target{"windows", "arm64"}
	for want, change := range map[string]func([]file) []file{
		"without LICENSE":    func(files []file) []file { return without(files, "LICENSE") },
		"without man/fitz.1": func(files []file) []file { return without(files, "man/fitz.1") },
		"without fitz.exe":   func(files []file) []file { return without(files, "fitz.exe") },
		"without NOTICE":     func(files []file) []file { return append(without(files, "NOTICE"), file{"NOTICE", modeFile, nil}) },
		"permissions 644":    func(files []file) []file { files[0].mode = modeFile; return files },
		"stands outside":     func(files []file) []file { return append(files, file{"../x", modeFile, nil}) },
		"fitzd.exe: ":        func(files []file) []file { return files }, // a text
	} {
		if err := verifyFiles(windows, below(windows.folder(), change(archiveFiles(windows)))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func without(files []file, name string) []file {
	return slices.DeleteFunc(files, func(f file) bool { return f.name == name })
}

// A release whose checksums do not fit is noticed.
func TestChecksums(t *testing.T) {
	dir := t.TempDir()
	r := &release{files: []file{{"b.txt", modeFile, []byte("b")}, {"a.txt", modeFile, []byte("a")}}}
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(dir, checksumsFile))
	if want := fmt.Sprintf("%x  a.txt\n%x  b.txt\n", sha256.Sum256([]byte("a")), sha256.Sum256([]byte("b"))); err != nil || string(sums) != want {
		t.Fatalf("%s, %v", sums, err)
	}
	if contents, err := checked(dir); err != nil || len(contents) != 2 {
		t.Fatalf("%v, %v", contents, err)
	}
	if err := r.write(dir); err != nil {
		t.Errorf("over an earlier release: %v", err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.txt", "other")
	if _, err := checked(dir); err == nil || !strings.Contains(err.Error(), "a.txt: the checksum") {
		t.Error(err)
	}
	write("a.txt", "a")
	write("c.txt", "c")
	if _, err := checked(dir); err == nil || !strings.Contains(err.Error(), "c.txt has no checksum") {
		t.Error(err)
	}
	write(checksumsFile, "0  ../x\n")
	if _, err := checked(dir); err == nil || !strings.Contains(err.Error(), "line") {
		t.Error(err)
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.write(foreign); err == nil {
		t.Error("a folder that holds something else was emptied")
	}
}

func TestMadeAgain(t *testing.T) {
	first := []file{{"a", modeFile, []byte("1")}, {"b", modeFile, []byte("2")}}
	for _, c := range []struct {
		again []file
		same  bool
	}{{first[1:], true}, {first, true}, {[]file{{"a", modeFile, []byte("3")}}, false}, {[]file{{"c", modeFile, []byte("1")}}, false}} {
		if err := same(first, c.again); (err == nil) != c.same {
			t.Errorf("%v: %v", c.again, err)
		}
	}
}

// repository is a small tree under version control.
func repository(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed: the state of a tree is not read here")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"a/b.txt": "b", ".gitignore": "ignored\n", "ignored": "x"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "a"}} {
		environ := []string{"GIT_COMMITTER_DATE=2026-01-02T03:04:06Z", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1"}
		if _, err := output(t.Context(), dir, environ, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestStateOfTheTree(t *testing.T) {
	dir := repository(t)
	clean, err := look(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if clean.dirty() || len(clean.commit) != commitDigits || !clean.made.Equal(someDay) || !slices.Equal(clean.files, []string{".gitignore", "a/b.txt"}) {
		t.Errorf("%+v", clean)
	}
	copied := t.TempDir()
	if err := clean.copyTo(dir, copied); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(copied, "a", "b.txt")); err != nil || string(text) != "b" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.Remove(filepath.Join(dir, "a", "b.txt")); err != nil {
		t.Fatal(err)
	}
	changed, err := look(t.Context(), dir)
	if err != nil || !changed.dirty() || !slices.Equal(changed.files, []string{".gitignore"}) {
		t.Errorf("%+v, %v", changed, err)
	}
	if _, err := look(t.Context(), t.TempDir()); err == nil {
		t.Error("a folder without version control has a state")
	}
	// A release is not made of it unless that is said.
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"make", "--root", dir, "--out", filepath.Join(t.TempDir(), "dist")}, &stdout, &stderr); code != 1 ||
		!strings.Contains(stderr.String(), "not committed") {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
}

func TestUsage(t *testing.T) {
	for line, want := range map[string]int{"--help": 0, "": 2, "make --targets plan9": 1, "build --target linux --out x --commit c": 1, "verify /nowhere": 1, "sing": 2} {
		var stdout, stderr bytes.Buffer
		if code := run(context.Background(), strings.Fields(line), &stdout, &stderr); code != want {
			t.Errorf("%q: exit %d, want %d: %s", line, code, want, stderr.String())
		}
	}
}

// The line of the Dockerfile that builds is one that this program understands: it is called with a platform that there is not.
func TestImageIsBuiltByThisProgram(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	_, line, found := strings.Cut(string(text), "\nRUN go run ./tools/cmd/fitz-release ")
	line, _, _ = strings.Cut(line, "\n")
	if !found || !strings.Contains(line, "$TARGETOS/$TARGETARCH") || !strings.Contains(line, "$COMMIT") {
		t.Fatalf("it is built by %q", line)
	}
	line = strings.NewReplacer(`"`, "", "$TARGETOS", "plan9", "$TARGETARCH", "mips", "$COMMIT", "0123456789ab").Replace(line)
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), strings.Fields(line), &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), `target "plan9/mips" is none of linux/amd64`) {
		t.Errorf("%s: exit %d: %s", line, code, stderr.String())
	}
}
