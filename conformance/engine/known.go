package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"gopkg.in/yaml.v3"
)

// States of a known failure.
const (
	KnownFails   = "fails"   // as listed
	KnownPasses  = "passes"  // the entry must go
	KnownDiffers = "differs" // it fails in another way
	KnownStale   = "stale"   // there is no such case
	KnownUnseen  = "unseen"  // it was not run, which only a filtered run may say
)

// Known is a failure that is known and not mended yet. It must go on failing in exactly this way.
type Known struct {
	Case    string `yaml:"case" json:"case"`       // OBS-003/tcp/on/anonymous
	Reason  string `yaml:"reason" json:"reason"`   // reason of the verdict: expectation
	Message string `yaml:"message" json:"message"` // part of the message of the verdict
	Why     string `yaml:"why" json:"why"`         // why it fails and why that is accepted for now
	Owner   string `yaml:"owner" json:"owner"`     // who mends it
}

// LoadKnown reads a file of known failures: a list of entries. All keys of an entry are needed.
func LoadKnown(name string) ([]Known, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var list []Known
	if err := d.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	seen := map[string]bool{}
	for i, k := range list {
		for key, value := range map[string]string{"case": k.Case, "reason": k.Reason, "message": k.Message, "why": k.Why, "owner": k.Owner} {
			if strings.TrimSpace(value) == "" {
				return nil, fmt.Errorf("%s: entry %d (%s) has no %s", name, i+1, k.Case, key)
			}
		}
		if seen[k.Case] {
			return nil, fmt.Errorf("%s: %s is listed twice", name, k.Case)
		}
		seen[k.Case] = true
	}
	return list, nil
}

// settleKnown marks the cases that fail as they are known to, and says what became of every entry.
func (r *Run) settleKnown(list []Known) {
	for _, k := range list {
		state := KnownStale
		if r.Filtered {
			state = KnownUnseen
		}
		for i := range r.Cases {
			if c := &r.Cases[i]; c.Name == k.Case {
				state = c.known(k)
			}
		}
		if state != KnownUnseen {
			r.Known = append(r.Known, KnownState{k, state})
		}
	}
}

// known compares a case with an entry. A pass becomes a failure, because the entry hides something that is mended.
func (c *Case) known(k Known) string {
	switch {
	case c.Verdict == Pass:
		c.Verdict, c.Reason = Fail, ReasonKnownPasses
		c.Message = "it is listed as a known failure and passes; take it off the list"
		return KnownPasses
	case c.Verdict != Fail || c.Reason != k.Reason || !strings.Contains(c.Message, k.Message):
		c.Message = fmt.Sprintf("it is listed as failing with %s: %s, and is %s with %s: %s", k.Reason, k.Message, c.Verdict, c.Reason, c.Message)
		c.Verdict, c.Reason = Fail, ReasonKnownOther
		return KnownDiffers
	}
	c.Known = k.Why + " (" + k.Owner + ")"
	return KnownFails
}
