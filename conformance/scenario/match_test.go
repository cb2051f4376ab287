package scenario

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

type (
	m = map[string]any
	l = []any
)

func TestMatch(t *testing.T) {
	item := func(route string) m { return m{"route": route, "n": int64(1)} }
	for _, c := range []struct {
		name      string
		want, got any
		says      string // "" for a match
	}{
		{"number", int64(1), uint64(1), ""},
		{"number as text", int64(1), "1", ""},
		{"largest u64 as text", uint64(1<<64 - 1), "18446744073709551615", ""},
		{"JSON number", int64(5), json.Number("5"), ""},
		{"fraction", 0.5, json.Number("0.5"), ""},
		{"text is no number", "1", "01", `value: expected "1", got "01"`},
		{"other number", int64(1), int64(2), "value: expected 1, got 2"},
		{"bool", true, false, "value: expected true, got false"},
		{"bool is no text", true, "true", `expected true, got "true"`},
		{"bytes as base64", []byte{0, 255}, base64.StdEncoding.EncodeToString([]byte{0, 255}), ""},
		{"bytes", []byte{0, 255}, []byte{0, 254}, "value: expected 0x00ff, got 0x00fe"},
		{"name of a number", "acquired", Named{0, "acquired"}, ""},
		{"number of a name", int64(0), Named{0, "acquired"}, ""},
		{"other name", "queued", Named{0, "acquired"}, `expected "queued", got acquired (0)`},
		{"part of the keys", m{"a": int64(1)}, m{"a": int64(1), "b": int64(2)}, ""},
		{"missing key", m{"a": int64(1)}, m{}, "a: expected 1, got nothing"},
		{"null key", m{"a": m{"$any": true}}, m{"a": nil}, "a: expected anything, got nothing"},
		{"any mapping", m{}, m{"a": int64(1)}, ""},
		{"no mapping", m{}, int64(1), "expected a mapping, got 1"},
		{"exact", m{"$exact": true, "a": int64(1)}, m{"a": int64(1), "b": int64(2)}, "b: expected nothing, got 2"},
		{"exactly nothing", m{"$exact": true}, m{}, ""},
		{"deep", m{"a": m{"b": l{item("x")}}}, m{"a": m{"b": l{item("y")}}}, `a.b.0.route: expected "x", got "y"`},
		{"length of a list", l{int64(1)}, l{}, "expected 1 members, got"},
		{"no list", l{}, "x", "expected a list of 0"},
		{"absent", m{"a": m{"$absent": true}}, m{}, ""},
		{"present", m{"a": m{"$absent": true}}, m{"a": int64(1)}, "a: expected nothing, got 1"},
		{"any", m{"a": m{"$any": true}}, m{"a": false}, ""},
		{"not", m{"$not": int64(1)}, int64(2), ""},
		{"not but is", m{"$not": int64(1)}, int64(1), "expected anything but 1, got 1"},
		{"range", m{"$min": int64(1), "$max": int64(3)}, "3", ""},
		{"below", m{"$min": int64(1)}, int64(0), "expected at least 1, got 0"},
		{"above", m{"$max": int64(1)}, int64(2), "expected at most 1, got 2"},
		{"no number in a range", m{"$min": int64(1)}, "x", "expected at least 1"},
		{"pattern", m{"$re": "^a+$"}, "aaa", ""},
		{"other pattern", m{"$re": "^a+$"}, "b", `expected text of the form "^a+$", got "b"`},
		{"length of text", m{"$len": int64(3)}, "abc", ""},
		{"length in a range", m{"$len": m{"$min": int64(4)}}, []byte{1}, "expected length {$min: 4}"},
		{"length of nothing", m{"$len": int64(0)}, int64(0), "expected length 0"},
		{"contains", m{"$contains": item("b")}, l{item("a"), item("b")}, ""},
		{"contains each", m{"$contains": l{item("a"), item("a")}}, l{item("a"), item("b")}, "expected something that contains"},
		{"contains text", m{"$contains": "lif"}, Named{3, "correlation, lifecycle"}, ""},
		{"set", m{"$set": l{int64(1), int64(2)}}, l{int64(2), int64(1)}, ""},
		{"set with more", m{"$set": l{int64(1)}}, l{int64(1), int64(1)}, "expected in any order"},
		{"set that needs a search", m{"$set": l{m{"$any": true}, int64(1)}}, l{int64(1), int64(2)}, ""},
		{"one of", m{"$oneof": l{int64(1), "x"}}, "x", ""},
		{"none of", m{"$oneof": l{int64(1), "x"}}, "y", "expected one of"},
		{"sorted by segments", m{"$sorted": "route"}, l{item("a/z"), item("a-b/a")}, ""},
		{"not sorted", m{"$sorted": "route"}, l{item("b"), item("a")}, "ascending"},
		{"twice is not sorted", m{"$sorted": "."}, l{int64(1), int64(1)}, "ascending"},
		{"unknown operator", m{"$near": int64(1)}, int64(1), "unknown operator"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Describe(Match(c.want, c.got))
			if c.says == "" && got != "" || c.says != "" && !strings.Contains(got, c.says) {
				t.Errorf("got %q, want %q", got, c.says)
			}
		})
	}
}

// All differences are told, not only the first one.
func TestMatchTellsAll(t *testing.T) {
	if list := Match(m{"a": int64(1), "b": int64(2), "c": l{int64(1)}}, m{"a": int64(0), "c": l{int64(2)}}); len(list) != 3 {
		t.Error(Describe(list))
	}
}

// data draws plain values as a wire or a driver gives them.
func data(depth int) *rapid.Generator[any] {
	leaf := []*rapid.Generator[any]{
		rapid.Just[any](true), rapid.Map(rapid.Int64(), func(v int64) any { return v }), rapid.Map(rapid.Uint64(), func(v uint64) any { return v }),
		rapid.Map(rapid.StringMatching(`[a-z]{0,8}`), func(v string) any { return v }),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 8), func(v []byte) any { return v }),
	}
	if depth == 0 {
		return rapid.OneOf(leaf...)
	}
	return rapid.OneOf(append(leaf,
		rapid.Map(rapid.SliceOfN(data(depth-1), 0, 4), func(v []any) any { return v }),
		rapid.Map(rapid.MapOfN(rapid.StringMatching(`[a-z]{1,4}`), data(depth-1), 0, 4), func(v map[string]any) any { return v }),
	)...)
}

// driverForm is a value as it comes back from a driver: big numbers as text, bytes as base64.
func driverForm(v any) any {
	switch v := v.(type) {
	case int64:
		return json.Number(strconv.FormatInt(v, 10))
	case uint64:
		return strconv.FormatUint(v, 10)
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = driverForm(v[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for key, member := range v {
			out[key] = driverForm(member)
		}
		return out
	}
	return v
}

// A value matches itself, in the form of a driver too, with more keys beside it, and not when a leaf of it is changed.
func TestMatchProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := data(3).Draw(t, "value")
		if list := Match(v, v); len(list) > 0 {
			t.Fatal(Describe(list))
		}
		if list := Match(v, driverForm(v)); len(list) > 0 {
			t.Fatal(Describe(list))
		}
		outer := m{"v": v, "other": int64(1)}
		if list := Match(m{"v": v}, outer); len(list) > 0 {
			t.Fatal(Describe(list))
		}
		if list := Match(m{"v": v, "$exact": true}, outer); len(list) != 1 {
			t.Fatal(Describe(list))
		}
		changed := m{"v": l{v, "something that no value is"}}
		if list := Match(m{"v": l{v, "another"}}, changed); len(list) != 1 || list[0].Path != "v.1" {
			t.Fatal(Describe(list))
		}
		if got := Show(v); len(got) > maxShown+40 {
			t.Fatalf("%d bytes", len(got))
		}
	})
}

// A set matches every order of its members, and a range is what comparison says.
func TestOperatorProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Int64Range(0, 5), 0, 6).Draw(t, "list")
		members := make([]any, len(list))
		for i, v := range list {
			members[i] = v
		}
		order := rapid.Permutation(members).Draw(t, "order")
		if got := Match(m{"$set": members}, order); len(got) > 0 {
			t.Fatal(Describe(got))
		}
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		if got := len(Match(m{"$min": a}, b)) == 0; got != (b >= a) {
			t.Fatalf("%d at least %d: %v", b, a, got)
		}
		if got := len(Match(m{"$max": a}, strconv.FormatInt(b, 10))) == 0; got != (b <= a) {
			t.Fatalf("%d at most %d: %v", b, a, got)
		}
	})
}

// The search for members of a list ends, also when it is asked for the impossible.
func TestContainsEnds(t *testing.T) {
	var want, got l
	for i := range 40 {
		want = append(want, m{"$min": int64(0)})
		got = append(got, int64(i))
	}
	want = append(want, int64(-1))
	got = append(got, int64(99))
	if list := Match(m{"$set": want}, got); len(list) != 1 {
		t.Error(Describe(list))
	}
}

func TestExpand(t *testing.T) {
	vars := m{"a": int64(7), "s": "x", "page": m{"items": l{m{"route": "r"}}}, "big": uint64(1 << 63), "b": []byte{1}}
	lookup := func(name string) (any, bool) {
		head, rest, inside := strings.Cut(name, ".")
		v, ok := vars[head]
		if !ok || !inside {
			return v, ok
		}
		return Find(v, rest)
	}
	for _, c := range []struct {
		name     string
		in, want any
		fails    string
	}{
		{"typed", "$a", int64(7), ""},
		{"text", "w$a-$s", "w7-x", ""},
		{"braces", "${s}y", "xy", ""},
		{"dollar", "a$$b", "a$b", ""},
		{"only a dollar", "$$", "$", ""},
		{"path", "$page.items.0.route", "r", ""},
		{"number of members", "$page.items.count", int64(1), ""},
		{"sum", m{"$sum": l{"$a", int64(1), "$big"}}, uint64(1<<63 + 8), ""},
		{"sum of text", m{"$sum": l{"x"}}, nil, "not a whole number"},
		{"sum that does not fit", m{"$sum": l{"$big", "$big"}}, nil, "does not fit"},
		{"repeat", m{"$repeat": m{"text": "ab", "times": int64(3)}}, "ababab", ""},
		{"repeat too long", m{"$repeat": m{"text": "ab", "times": int64(1 << 40)}}, nil, "more than"},
		{"hex", m{"$hex": "00 fF"}, []byte{0, 255}, ""},
		{"no hex", m{"$hex": "0"}, nil, "odd length"},
		{"bytes", m{"$bytes": "ab"}, []byte("ab"), ""},
		{"list", m{"$list": m{"times": int64(2), "var": "i", "value": "w$i$s"}}, l{"w1x", "w2x"}, ""},
		{"matcher stays", m{"$min": "$a"}, m{"$min": int64(7)}, ""},
		{"inside", l{m{"k": l{"$a"}}}, l{m{"k": l{int64(7)}}}, ""},
		{"unknown", "$nobody", nil, `variable "nobody" is not set`},
		{"unknown in text", "a$nobody", nil, `variable "nobody" is not set`},
		{"mapping in text", "a${page}", nil, "does not fit into a text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Expand(c.in, lookup)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Fatalf("%v %v", got, err)
				}
				return
			}
			if err != nil || !Equal(c.want, got) {
				t.Errorf("got %s %v, want %s", Show(got), err, Show(c.want))
			}
		})
	}
}
