package main

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// debRevision counts packages that were made of one version.
const debRevision = "1"

// debName is the file name of the Debian package of a target. Debian names the processors as Go does.
func debName(t target) string { return fmt.Sprintf("fitz_%s-%s_%s.deb", version, debRevision, t.arch) }

// debPlaces says where the files of an archive stand on a Debian system. Manual pages are compressed there.
var debPlaces = map[string]string{
	"fitzd":                  "usr/bin/fitzd",
	"fitz":                   "usr/bin/fitz",
	"NOTICE":                 "usr/share/doc/fitz/NOTICE",
	noticesFile:              "usr/share/doc/fitz/" + noticesFile,
	"LICENSE":                "usr/share/doc/fitz/copyright",
	sampleConfig:             "etc/fitz/fitzd.yaml",
	serviceUnit:              "usr/lib/systemd/system/fitzd.service",
	"man/fitz.1":             "usr/share/man/man1/fitz.1.gz",
	"man/fitzd.8":            "usr/share/man/man8/fitzd.8.gz",
	"man/fitzd.yaml.5":       "usr/share/man/man5/fitzd.yaml.5.gz",
	"completions/fitz.bash":  "usr/share/bash-completion/completions/fitz",
	"completions/fitzd.bash": "usr/share/bash-completion/completions/fitzd",
	"completions/_fitz":      "usr/share/zsh/vendor-completions/_fitz",
	"completions/_fitzd":     "usr/share/zsh/vendor-completions/_fitzd",
	"completions/fitz.fish":  "usr/share/fish/vendor_completions.d/fitz.fish",
	"completions/fitzd.fish": "usr/share/fish/vendor_completions.d/fitzd.fish",
}

// credentialsFolder is where an operator puts secrets; the unit hands them to the broker.
const credentialsFolder = "etc/fitz/credentials/"

// The scripts only tell systemd. They never start the broker, and never restart one that runs: its leases would be gone.
const (
	debPostinst = "#!/bin/sh\nset -e\nif [ \"$1\" = configure ] && [ -d /run/systemd/system ]; then\n    systemctl daemon-reload\nfi\n"
	debPrerm    = "#!/bin/sh\nset -e\nif [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then\n    systemctl stop fitzd.service\nfi\n"
	debPostrm   = "#!/bin/sh\nset -e\nif [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then\n    systemctl daemon-reload\nfi\n"
)

// debian makes the package of broker and command line from the files of the archive of a target.
func debian(t target, files []file, made time.Time) ([]byte, error) {
	var placed []file
	for name, place := range debPlaces {
		at := slices.IndexFunc(files, func(f file) bool { return f.name == name })
		if at < 0 {
			return nil, fmt.Errorf("%s: %s is missing", debName(t), name)
		}
		f := file{place, files[at].mode, files[at].content}
		if strings.HasSuffix(place, ".gz") {
			f.content = gzipped(f.content)
		}
		placed = append(placed, f)
	}
	placed = ordered(placed)
	var control, data, b bytes.Buffer
	if err := writeTarGz(&control, debControl(t, placed), made); err != nil {
		return nil, err
	}
	if err := writeTarGz(&data, rooted(withFolders(placed)), made); err != nil {
		return nil, err
	}
	b.WriteString(arMagic)
	for _, member := range []file{{"debian-binary", modeFile, []byte("2.0\n")}, {"control.tar.gz", modeFile, control.Bytes()}, {"data.tar.gz", modeFile, data.Bytes()}} {
		writeMember(&b, member, made)
	}
	return b.Bytes(), nil
}

func debControl(t target, placed []file) []file {
	var sums strings.Builder
	size := 0
	for _, f := range placed {
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.content), f.name)
		size += len(f.content)
	}
	control := fmt.Sprintf("Package: fitz\nVersion: %s-%s\nArchitecture: %s\nMaintainer: The Fitz Authors\nInstalled-Size: %d\nSection: net\n"+
		"Priority: optional\nDescription: lease broker and its command line\n"+
		" Fitz coordinates fleets of workers through leases: one live holder, a time to\n live, a fencing token, waiters served first in, first out.\n",
		version, debRevision, t.arch, (size+1023)/1024)
	return []file{{"./control", modeFile, []byte(control)}, {"./conffiles", modeFile, []byte("/" + debPlaces[sampleConfig] + "\n")},
		{"./md5sums", modeFile, []byte(sums.String())}, {"./postinst", modeProgram, []byte(debPostinst)},
		{"./prerm", modeProgram, []byte(debPrerm)}, {"./postrm", modeProgram, []byte(debPostrm)}}
}

// withFolders adds every folder that a file stands in, and the one for secrets.
func withFolders(files []file) []file {
	all := append(slices.Clone(files), file{credentialsFolder, modeSecret, nil})
	seen := map[string]bool{".": true, strings.TrimSuffix(credentialsFolder, "/"): true}
	for _, f := range all {
		for dir := path.Dir(strings.TrimSuffix(f.name, "/")); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			all = append(all, file{dir + "/", modeProgram, nil})
		}
	}
	return all
}

// rooted puts "./" before names, as dpkg has it.
func rooted(files []file) []file {
	moved := slices.Clone(files)
	for i := range moved {
		moved[i].name = "./" + moved[i].name
	}
	return moved
}

func gzipped(content []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // fails only with an unknown level
	_, _ = w.Write(content)                               // into memory
	_ = w.Close()
	return b.Bytes()
}

// The ar format: a magic line, then members with a header of fixed columns, each at an even offset.
const (
	arMagic      = "!<arch>\n"
	arHeaderSize = 60
	arHeaderEnd  = "`\n"
)

func writeMember(b *bytes.Buffer, f file, made time.Time) {
	fmt.Fprintf(b, "%-16s%-12d%-6d%-6d%-8o%-10d%s", f.name, made.Unix(), 0, 0, 0o100000|f.mode, len(f.content), arHeaderEnd)
	b.Write(f.content)
	if len(f.content)%2 == 1 {
		b.WriteByte('\n')
	}
}

// members reads an archive of the ar format.
func members(content []byte) ([]file, error) {
	rest, found := bytes.CutPrefix(content, []byte(arMagic))
	if !found {
		return nil, fmt.Errorf("no ar archive")
	}
	var files []file
	for len(rest) > 0 {
		if len(rest) < arHeaderSize || string(rest[arHeaderSize-len(arHeaderEnd):arHeaderSize]) != arHeaderEnd {
			return nil, fmt.Errorf("a header of the ar archive is broken")
		}
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil || size < 0 || size > len(rest)-arHeaderSize {
			return nil, io.ErrUnexpectedEOF
		}
		files = append(files, file{strings.TrimSpace(string(rest[:16])), modeFile, rest[arHeaderSize : arHeaderSize+size]})
		rest = rest[min(arHeaderSize+size+size%2, len(rest)):]
	}
	return files, nil
}
