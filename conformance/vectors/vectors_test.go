package vectors

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fitzwire/fitz/conformance/oracle"
)

func pointer[T any](v T) *T { return &v }

// byID is one vector.
func byID(t *testing.T, id string) Vector {
	t.Helper()
	for _, v := range all(t) {
		if v.ID == id {
			return v
		}
	}
	t.Fatalf("no vector %s", id)
	return Vector{}
}

// Check sees every difference between an answer and a vector, and takes what languages say differently.
func TestCheck(t *testing.T) {
	cut := byID(t, "lease.acquire.request/truncated-ttl")
	right := Answer{Verdict: oracle.Reject, Class: cut.Class, Offset: cut.Offset, Code: &cut.Code}
	plain := byID(t, "lease.acquire.request/without-optional")
	value := func(change func(map[string]any)) Answer {
		v := normal(plain.Value)
		change(v)
		return Answer{Verdict: oracle.Accept, Value: v}
	}
	page := byID(t, "lease.list.reply/two-items")
	fewer := normal(page.Value)
	fewer["items"] = fewer["items"].([]any)[:1]
	labelled := byID(t, "frames.up/label")
	records := func(change func(*Answered)) Answer {
		r := labelled.Records[0]
		a := Answered{r.Message, r.Form, r.Label, r.Value}
		change(&a)
		return Answer{Verdict: oracle.Accept, Records: []Answered{a}}
	}
	cases := []struct {
		name string
		v    Vector
		a    Answer
		want string // part of the error, "" for none
	}{
		{"rejected", cut, right, ""},
		{"accepted", cut, Answer{Verdict: oracle.Accept}, "want reject (truncated at byte"},
		{"no verdict", cut, Answer{}, "no verdict"},
		{"class", cut, Answer{Verdict: oracle.Reject, Class: oracle.Trailing, Offset: cut.Offset, Code: &cut.Code}, "class"},
		{"offset", cut, Answer{Verdict: oracle.Reject, Class: cut.Class, Offset: pointer(0), Code: &cut.Code}, "offset 0"},
		{"no offset", cut, Answer{Verdict: oracle.Reject, Class: cut.Class, Code: &cut.Code}, "offset none"},
		{"code", cut, Answer{Verdict: oracle.Reject, Class: cut.Class, Offset: cut.Offset, Code: pointer(uint32(1))}, "code 1"},
		{"no code", cut, Answer{Verdict: oracle.Reject, Class: cut.Class, Offset: cut.Offset}, "code none"},
		{"the same value", plain, value(func(map[string]any) {}), ""},
		{"numbers as numbers", plain, value(func(v map[string]any) { v["ttl"] = 4 }), ""},
		{"zero for an absent field", plain, value(func(v map[string]any) { v["wait"] = 0 }), ""},
		{"null for an absent field", plain, value(func(v map[string]any) { v["wait"] = nil }), ""},
		{"something for an absent field", plain, value(func(v map[string]any) { v["wait"] = 5 }), "wait is 5"},
		{"another number", plain, value(func(v map[string]any) { v["ttl"] = "5" }), "ttl is 5"},
		{"another text", plain, value(func(v map[string]any) { v["owner_id"] = "" }), "owner_id"},
		{"a missing field", plain, value(func(v map[string]any) { delete(v, "route") }), "route is missing"},
		{"ignored", plain, Answer{Verdict: oracle.Accept, Ignored: true}, "ignored"},
		{"fewer members", page, Answer{Verdict: oracle.Accept, Value: fewer}, "items has not 2 members"},
		{"records", labelled, records(func(*Answered) {}), ""},
		{"no label", labelled, records(func(r *Answered) { r.Label = "" }), "label"},
		{"no records", labelled, Answer{Verdict: oracle.Accept}, "0 records"},
	}
	for _, c := range cases {
		err := Check(c.v, c.a)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// CheckBytes compares every byte, and only where there is one right way to write a value.
func TestCheckBytes(t *testing.T) {
	v := byID(t, "lease.acquire.request/with-wait")
	if err := CheckBytes(v, v.Bytes); err != nil {
		t.Error(err)
	}
	for _, wrong := range [][]byte{nil, v.Bytes[:len(v.Bytes)-1], append(append([]byte{}, v.Bytes...), 0)} {
		if CheckBytes(v, wrong) == nil {
			t.Errorf("%x passed", wrong)
		}
	}
	if CheckBytes(byID(t, "lease.acquire.request/with-default-wait"), nil) == nil {
		t.Error("a vector for decoders was used for an encoder")
	}
}

// A file that does not hold what it should is an error, never fewer vectors.
func TestStrict(t *testing.T) {
	good, err := os.ReadFile(*vectorDir + "/session.json")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{
		"nothing":      "",
		"unknown key":  strings.Replace(string(good), `"verdict"`, `"verdikt"`, 1),
		"twice":        strings.Replace(string(good), `"id": "session.connect/max-token"`, `"id": "session.connect/plain"`, 1),
		"no hex":       strings.Replace(string(good), `"bytes": "`, `"bytes": "zz`, 1),
		"no number":    strings.Replace(string(good), `"times": `, `"times": -`, 1),
		"no vectors":   `{"vectors": []}`,
		"endless part": `{"vectors": [{"id": "x", "bytes": [{"hex": "00", "times": 999999999}]}]}`,
		"endless list": `{"vectors": [{"id": "x", "bytes": "", "value": {"a": {"$items": [{"item": 1, "times": 999999999}]}}}]}`,
	}
	for name, content := range cases {
		if content == string(good) {
			t.Fatalf("%s changes nothing", name)
		}
		if got, err := All(fstest.MapFS{"session.json": {Data: []byte(content)}}); err == nil {
			t.Errorf("%s: %d vectors", name, len(got))
		}
	}
	if _, err := All(fstest.MapFS{}); err == nil {
		t.Error("an empty folder has vectors")
	}
	if _, err := Routes(fstest.MapFS{"routes.json": {Data: []byte("{}")}}); err == nil {
		t.Error("an empty file has routes")
	}
}

// The arguments of the driver commands hold what a driver needs, written out.
func TestArgs(t *testing.T) {
	v := byID(t, "lease.acquire.request/max-owner_id")
	if args := v.DecodeArgs(); args["bytes"] == "" || len(args["bytes"].(string)) != 2*len(v.Bytes) || args["dir"] != "up" {
		t.Error(args)
	}
	owner := v.EncodeArgs()["value"].(map[string]any)["owner_id"]
	if owner != strings.Repeat("x", 512) {
		t.Errorf("the owner is %v", owner)
	}
}

// The guide shows vectors as they are.
func TestGuide(t *testing.T) {
	content, err := os.ReadFile("../../docs/guides/use-the-vectors.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(content), "```json\n")
	if len(parts) < 3 {
		t.Fatal("the guide shows no vectors")
	}
	for _, part := range parts[1:] {
		block, _, _ := strings.Cut(part, "```")
		var shown oracle.Vector
		if err := json.Unmarshal([]byte(block), &shown); err != nil {
			t.Fatal(err)
		}
		want := byID(t, shown.ID).Vector
		got, err := json.Marshal(shown)
		if err != nil {
			t.Fatal(err)
		}
		real, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(string(got), string(real)) {
			t.Errorf("the guide shows\n%s\nthe file has\n%s", got, real)
		}
	}
}
