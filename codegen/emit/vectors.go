package emit

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/fitzwire/fitz/codegen/model"
	"github.com/fitzwire/fitz/codegen/overlay"
	"github.com/fitzwire/fitz/conformance/oracle"
)

func init() { register("vectors", vectorFiles) }

// vectorFiles lets the oracle make the golden vectors. It reads the files of the specification anew and knows nothing of the model, so that the
// vectors can judge what all other emitters make of it.
func vectorFiles(spec *model.Spec) ([]File, error) {
	sources := overlay.New(nil)
	for name, text := range spec.Sources {
		sources.Put(name, text)
	}
	o, err := oracle.LoadIndex(sources, spec.Index)
	if err != nil {
		return nil, err
	}
	vectors, err := o.Vectors(fmt.Sprintf("%016x", spec.Fingerprint))
	if err != nil {
		return nil, err
	}
	var files []File
	for name, content := range vectors {
		files = append(files, File{Path: "vectors/" + name, Source: "conformance/oracle", Content: content})
	}
	return sorted(files)
}

// CountVectors counts the golden vectors in generated files: those that a receiver accepts and those that it rejects.
func CountVectors(files []File) (accepted, rejected int) {
	for _, f := range files {
		if strings.HasPrefix(f.Path, "vectors/") {
			accepted += bytes.Count(f.Content, []byte(`"verdict": "`+oracle.Accept+`"`))
			rejected += bytes.Count(f.Content, []byte(`"verdict": "`+oracle.Reject+`"`))
		}
	}
	return accepted, rejected
}
