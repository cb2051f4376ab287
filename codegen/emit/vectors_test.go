package emit

import "testing"

// Vectors of messages and routes are counted, and nothing else is.
func TestCountVectors(t *testing.T) {
	accepted, rejected := CountVectors(generate(t, loadSpec(t)))
	if accepted < 300 || rejected < 400 {
		t.Errorf("%d accepted, %d rejected", accepted, rejected)
	}
	if accepted, rejected = CountVectors([]File{{Path: "docs/x.md", Content: []byte(`"verdict": "accept"`)}}); accepted+rejected > 0 {
		t.Error("a document was counted")
	}
}
