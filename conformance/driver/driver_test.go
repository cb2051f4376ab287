package driver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

// The test binary is also the driver program of the tests about processes.
func TestMain(m *testing.M) {
	if act := os.Getenv("FITZ_TEST_DRIVER"); act != "" {
		os.Exit(program(act))
	}
	goleak.VerifyTestMain(m)
}

const hello = `{"ev":"hello","protocol":1,"name":"t","features":["lease"]}` + "\n"

// echo is a good driver: it answers each command with its name, and events on request.
func echo(ctx context.Context, in io.Reader, out, _ io.Writer) int {
	return acting(func(c Command) string { return fmt.Sprintf(`{"id":%d,"ok":{"cmd":%q}}`+"\n", c.ID, c.Cmd) })(ctx, in, out, nil)
}

// acting is a driver that answers each command with what a function makes of it.
func acting(answer func(Command) string) Main {
	return func(_ context.Context, in io.Reader, out, _ io.Writer) int {
		_, _ = io.WriteString(out, hello)
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			var c Command
			if json.Unmarshal(lines.Bytes(), &c) != nil {
				return 3
			}
			if _, err := io.WriteString(out, answer(c)); err != nil {
				return 4
			}
		}
		_, _ = io.WriteString(out, `{"ev":"bye"}`+"\n")
		return 0
	}
}

func program(act string) int {
	switch act {
	case "echo":
		return echo(context.Background(), os.Stdin, os.Stdout, os.Stderr)
	case "unsupported":
		return ExitUnsupported
	case "orphan":
		child := exec.Command("sleep", "60")
		if child.Start() != nil {
			return 5
		}
		return echo(context.Background(), os.Stdin, os.Stdout, os.Stderr)
	case "deaf":
		_, _ = io.WriteString(os.Stdout, hello)
		time.Sleep(time.Minute)
	case "exit":
		return acting(func(Command) string { os.Exit(9); return "" })(context.Background(), os.Stdin, os.Stdout, os.Stderr)
	}
	return 0
}

// testLimits are small bounds, and more time than a busy machine needs.
func testLimits() Limits {
	l := DefaultLimits
	l.Hello, l.Bye, l.Answer, l.Line, l.Stderr, l.Events = time.Minute, time.Minute, time.Minute, 1000, 5000, 10
	return l
}

// hurriedLimits are for drivers for which a test waits in vain.
func hurriedLimits() Limits {
	l := testLimits()
	l.Bye, l.Answer = 300*time.Millisecond, 300*time.Millisecond
	return l
}

func start(t *testing.T, main Main) *Driver {
	t.Helper()
	return startWithin(t, main, testLimits())
}

func startWithin(t *testing.T, main Main, limits Limits) *Driver {
	t.Helper()
	d, err := Run(t.Context(), main, limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	return d
}

func TestGoodDriver(t *testing.T) {
	d := start(t, echo)
	if !d.Has("lease") || d.Has("obs") || d.Hello().Name != "t" {
		t.Errorf("hello %+v", d.Hello())
	}
	for range 3 {
		r, err := d.Do(t.Context(), Command{Cmd: "stats"})
		if err != nil || r.OK["cmd"] != "stats" {
			t.Fatalf("%+v %v", r, err)
		}
	}
	if f := d.Alive(); f != nil {
		t.Fatal(f)
	}
	if f := d.Close(); f != nil {
		t.Fatal(f)
	}
	if _, err := d.Send(Command{Cmd: "late"}); err == nil {
		t.Error("a command after the end was taken")
	}
}

// Answers may come in any order.
func TestRepliesOutOfOrder(t *testing.T) {
	d := start(t, acting(func(c Command) string {
		switch c.ID {
		case 1:
			return ""
		case 2:
			return `{"id":2,"err":{"class":"Unsupported"}}` + "\n"
		}
		return `{"id":3,"cancelled":true}` + "\n" + `{"id":1,"ok":{"big":"18446744073709551615","none":null}}` + "\n"
	}))
	calls := make([]*Call, 3)
	for i := range calls {
		var err error
		if calls[i], err = d.Send(Command{Cmd: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	first, err1 := d.Wait(t.Context(), calls[0])
	second, err2 := d.Wait(t.Context(), calls[1])
	third, err3 := d.Wait(t.Context(), calls[2])
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if _, null := first.OK["none"]; null || first.OK["big"] != "18446744073709551615" || !second.Unsupported() || !third.Cancelled {
		t.Errorf("%+v %+v %+v", first, second, third)
	}
	if open := d.Open(); len(open) != 0 {
		t.Errorf("open %v", open)
	}
}

// Every misbehaviour has one name, and nothing of the driver is left (goleak in TestMain).
func TestFaults(t *testing.T) {
	line := func(text string) Main { return acting(func(Command) string { return text + "\n" }) }
	cases := []struct {
		name  string
		main  Main
		fault string
	}{
		{"says nothing and ends", func(context.Context, io.Reader, io.Writer, io.Writer) int { return 0 }, FaultNoHello},
		{"says something else first", func(_ context.Context, _ io.Reader, out, _ io.Writer) int {
			_, _ = io.WriteString(out, "starting\n")
			return 0
		}, FaultNoHello},
		{"speaks another version", func(_ context.Context, _ io.Reader, out, _ io.Writer) int {
			_, _ = io.WriteString(out, `{"ev":"hello","protocol":2,"name":"x"}`+"\n")
			return 0
		}, FaultBadHello},
		{"crashes", func(_ context.Context, in io.Reader, out, _ io.Writer) int {
			_, _ = io.WriteString(out, hello)
			_, _ = in.Read(make([]byte, 10))
			return 2
		}, FaultCrash},
		{"closes its output", func(ctx context.Context, in io.Reader, out, _ io.Writer) int {
			_, _ = io.WriteString(out, hello)
			_ = out.(io.Closer).Close()
			_, _ = io.Copy(io.Discard, in)
			<-ctx.Done()
			return 0
		}, FaultCrash},
		{"half a line", func(_ context.Context, in io.Reader, out, _ io.Writer) int {
			_, _ = io.WriteString(out, hello+`{"id":1,"o`)
			return 0
		}, FaultHalfLine},
		{"giant line", line(`{"id":1,"ok":{"x":"` + strings.Repeat("a", 2000) + `"}}`), FaultGiantLine},
		{"giant line without an end", acting(func(Command) string { return strings.Repeat("{", 100_000) }), FaultGiantLine},
		{"wrong id", line(`{"id":99,"ok":{}}`), FaultWrongID},
		{"id zero", line(`{"id":0,"ok":{}}`), FaultWrongID},
		{"duplicate answer", line(`{"id":1,"ok":{}}` + "\n" + `{"id":1,"ok":{}}`), FaultDuplicate},
		{"stray output", line("debug: here"), FaultStray},
		{"empty line", line(""), FaultStray},
		{"a list", line("[1]"), FaultStray},
		{"not UTF-8", line("{\"id\":1,\"ok\":{\"x\":\"\xff\"}}"), FaultNotUTF8},
		{"not JSON", line(`{"id":1,"ok":{}`), FaultNotJSON},
		{"two objects", line(`{"id":1,"ok":{}} {"id":2}`), FaultNotJSON},
		{"neither reply nor event", line(`{"hi":1}`), FaultBadMessage},
		{"ok and err", line(`{"id":1,"ok":{},"err":{"class":"x"}}`), FaultBadMessage},
		{"no outcome", line(`{"id":1}`), FaultBadMessage},
		{"not cancelled", line(`{"id":1,"cancelled":false}`), FaultBadMessage},
		{"ok is a number", line(`{"id":1,"ok":1}`), FaultBadMessage},
		{"err without class", line(`{"id":1,"err":{"code":"x"}}`), FaultBadMessage},
		{"event without counter", line(`{"ev":"x","of":"o1"}`), FaultBadMessage},
		{"event of nobody", line(`{"ev":"x","of":"zz","n":1}`), FaultUnknownHandle},
		{"event gap", line(`{"ev":"x","of":"o1","n":1}` + "\n" + `{"ev":"x","of":"o1","n":3}`), FaultEventGap},
		{"event twice", line(`{"ev":"x","of":"o1","n":1}` + "\n" + `{"ev":"x","of":"o1","n":1}`), FaultEventGap},
		{"second hello", line(strings.TrimSpace(hello)), FaultSecondHello},
		{"fatal", line(`{"ev":"fatal","message":"panic"}`), FaultFatal},
		{"bye too early", func(_ context.Context, in io.Reader, out, _ io.Writer) int {
			_, _ = io.WriteString(out, hello+`{"ev":"bye"}`+"\n")
			return 0
		}, FaultCrash},
		{"stderr flood", func(_ context.Context, in io.Reader, out, log io.Writer) int {
			_, _ = io.WriteString(out, hello)
			_, _ = in.Read(make([]byte, 10))
			_, _ = io.WriteString(log, strings.Repeat("noise\n", 10_000))
			_, _ = io.Copy(io.Discard, in)
			return 0
		}, FaultStderrFlood},
		{"event flood", acting(func(Command) string {
			var b strings.Builder
			for n := range 20 {
				fmt.Fprintf(&b, `{"ev":"x","of":"o1","n":%d}`+"\n", n+1)
			}
			return b.String()
		}), FaultEventFlood},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			limits := testLimits()
			if c.name == "closes its output" { // and is waited for
				limits = hurriedLimits()
			}
			d, err := Run(t.Context(), c.main, limits)
			if err == nil {
				defer d.Kill()
				_, err = d.Do(t.Context(), Command{Cmd: "x", As: "o1"})
				if err == nil {
					err = errorOf(d.Alive())
				}
			}
			var f *Fault
			if !errors.As(err, &f) || f.Name != c.fault {
				t.Fatalf("got %v, want %s", err, c.fault)
			}
		})
	}
}

func errorOf(f *Fault) error {
	if f == nil {
		return nil
	}
	return f
}

// A driver that answers nothing is found by asking it for its hello.
func TestHang(t *testing.T) {
	d := startWithin(t, acting(func(c Command) string { return "" }), hurriedLimits())
	if _, err := d.Send(Command{Cmd: "x"}); err != nil {
		t.Fatal(err)
	}
	if f := d.Alive(); f == nil || f.Name != FaultHang {
		t.Fatal(f)
	}
	if open := d.Open(); len(open) != 2 || open[0].Cmd != "x" {
		t.Errorf("open %v", open)
	}
}

func TestFaultsOfTheEnd(t *testing.T) {
	ending := func(text string, code int, more func(ctx context.Context)) Main {
		return func(ctx context.Context, in io.Reader, out, _ io.Writer) int {
			_, _ = io.WriteString(out, hello)
			_, _ = io.Copy(io.Discard, in)
			_, _ = io.WriteString(out, text)
			if more != nil {
				more(ctx)
			}
			return code
		}
	}
	const bye = `{"ev":"bye"}` + "\n"
	for name, c := range map[string]struct {
		main  Main
		fault string
	}{
		"no bye":    {ending("", 0, nil), FaultNoBye},
		"slow":      {ending(bye, 0, func(ctx context.Context) { <-ctx.Done() }), FaultSlowExit},
		"after bye": {ending(bye+`{"id":1,"ok":{}}`+"\n", 0, nil), FaultAfterBye},
		"code":      {ending(bye, 1, nil), FaultExitCode},
	} {
		t.Run(name, func(t *testing.T) {
			limits := testLimits()
			if c.fault == FaultSlowExit {
				limits = hurriedLimits()
			}
			d := startWithin(t, c.main, limits)
			if f := d.Close(); f == nil || f.Name != c.fault {
				t.Errorf("got %v, want %s", f, c.fault)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	n := 0
	d := start(t, acting(func(c Command) string {
		n++
		return fmt.Sprintf(`{"ev":"observer.state","of":"o1","n":%d,"state":"s%d"}`+"\n"+`{"id":%d,"ok":{}}`+"\n", n, n, c.ID)
	}))
	state := func(want string) func(Event) bool { return func(e Event) bool { return e.Fields["state"] == want } }
	for range 3 {
		if _, err := d.Do(t.Context(), Command{Cmd: "x", As: "o1"}); err != nil {
			t.Fatal(err)
		}
	}
	second, err := d.AwaitEvent(t.Context(), 0, state("s2"))
	if err != nil || second.N != 2 || second.Seq != 2 {
		t.Fatal(second, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if e, err := d.AwaitEvent(ctx, second.Seq, state("s2")); err == nil {
		t.Errorf("found %v again", e)
	}
	if got := len(d.Events(nil)); got != 3 || d.Seen() != 3 {
		t.Errorf("%d events", got)
	}
	d.Renew()
	if got := len(d.Events(nil)); got != 0 {
		t.Errorf("%d events after Renew", got)
	}
	if _, err := d.Do(t.Context(), Command{Cmd: "x"}); err != nil {
		t.Error("the counter of a handle goes on in the next case:", err)
	}
}

func self(t *testing.T, act string) Program {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Program{Args: []string{name}, Env: []string{"FITZ_TEST_DRIVER=" + act}}
}

func TestProcess(t *testing.T) {
	d, err := Start(t.Context(), self(t, "echo"), testLimits())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := d.Do(t.Context(), Command{Cmd: "stats"}); err != nil || r.OK["cmd"] != "stats" {
		t.Errorf("%+v %v", r, err)
	}
	if f := d.Close(); f != nil {
		t.Error(f)
	}
	if d.Exit() != 0 {
		t.Errorf("exit code %d", d.Exit())
	}
}

func TestProcessFaults(t *testing.T) {
	if _, err := Start(t.Context(), Program{Args: []string{"/does/not/exist"}}, testLimits()); err == nil || err.(*Fault).Name != FaultStart {
		t.Error(err)
	}
	_, err := Start(t.Context(), self(t, "unsupported"), testLimits())
	var f *Fault
	if !errors.As(err, &f) || f.Name != FaultNoHello || f.Exit != ExitUnsupported {
		t.Errorf("unsupported: %+v", err)
	}
	d, err := Start(t.Context(), self(t, "exit"), testLimits())
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Do(t.Context(), Command{Cmd: "x"})
	if !errors.As(err, &f) || f.Name != FaultCrash || f.Exit != 9 {
		t.Errorf("exit: %+v", err)
	}
	d.Kill()
}

// A process that a driver leaves behind is found and ended.
func TestOrphan(t *testing.T) {
	d, err := Start(t.Context(), self(t, "orphan"), testLimits())
	if err != nil {
		t.Fatal(err)
	}
	ends := d.ends
	if f := d.Close(); f == nil || f.Name != FaultOrphan {
		t.Errorf("got %v", f)
	}
	for deadline := time.Now().Add(time.Minute); ends.orphan() && !onlyZombies(t, ends.pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the orphan lives")
		}
	}
}

// onlyZombies tells whether every process of a group is dead, if not reaped by whoever inherited it.
func onlyZombies(t *testing.T, group int) bool {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest) // state, parent, group
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && fields[0] != "Z" {
			return false
		}
	}
	return true
}

// A driver that does not read is not waited for.
func TestDeaf(t *testing.T) {
	d, err := Start(t.Context(), self(t, "deaf"), hurriedLimits())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Kill()
	big := Command{Cmd: "x", Args: map[string]any{"pad": strings.Repeat("a", 1<<20)}}
	var f *Fault
	if _, err := d.Send(big); !errors.As(err, &f) || f.Name != FaultDeaf {
		t.Errorf("got %v", err)
	}
}

// parse never accepts both a message and a fault, and every well-formed reply comes back as it was written.
func TestParseProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Uint64().Draw(t, "id")
		value := rapid.String().Draw(t, "value")
		line, err := json.Marshal(map[string]any{"id": id, "ok": map[string]any{"v": value}})
		if err != nil {
			t.Fatal(err)
		}
		m, f := parse(line)
		if f != nil || m.reply == nil || m.reply.ID != id || m.reply.OK["v"] != value {
			t.Fatalf("%s: %+v %v", line, m.reply, f)
		}
		cut := rapid.IntRange(0, len(line)-1).Draw(t, "cut")
		if m, f := parse(line[:cut]); f == nil {
			t.Fatalf("a part is understood: %s %+v", line[:cut], m)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{hello, `{"id":1,"ok":{}}`, `{"id":"7","err":{"class":"X"}}`, `{"ev":"x","of":"o","n":1}`, `{"ev":"bye"}`, "{", "x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, fault := parse(line)
		understood := count(m.reply != nil, m.event != nil, m.hello != nil, m.bye)
		if (fault == nil) != (understood == 1) {
			t.Fatalf("%q: %+v %v", line, m, fault)
		}
		if m.reply != nil && count(m.reply.OK != nil, m.reply.Err != nil, m.reply.Cancelled) != 1 {
			t.Fatalf("%q: %+v", line, m.reply)
		}
	})
}

// A line is found whole however the bytes arrive.
func TestReadLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.StringMatching(`[a-z]{0,40}`), 1, 20).Draw(t, "lines")
		r := bufio.NewReaderSize(strings.NewReader(strings.Join(want, "\n")+"\n"), 16)
		for _, line := range want {
			got, err := readLine(r, 40)
			if err != nil || string(got) != line {
				t.Fatalf("%q %v, want %q", got, err, line)
			}
		}
		if _, err := readLine(r, 40); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	})
	if _, err := readLine(bufio.NewReaderSize(strings.NewReader(strings.Repeat("a", 100)), 16), 40); !errors.Is(err, errGiant) {
		t.Error(err)
	}
}
