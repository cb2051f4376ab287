package conformance

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/kit"
	"github.com/fitzwire/fitz/conformance/report"
)

// The suite asks the Go driver and the brokers of the tree. FITZ_CONFORMANCE_BIN is a folder that holds them already built;
// FITZ_CONFORMANCE_SEED is the seed.
const (
	binVariable  = "FITZ_CONFORMANCE_BIN"
	seedVariable = "FITZ_CONFORMANCE_SEED"
)

// TestConformance has a spec for every case. All cases that ginkgo chooses are one run of the engine, which shares processes and runs cases
// beside each other as the command does; the specs tell what became of each. The run checks by itself that nothing of it is left.
func TestConformance(t *testing.T) {
	tree, err := kit.Open("..")
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Mistakes) > 0 {
		t.Fatal(tree.Mistakes)
	}
	b := &batch{tree: tree, config: tree.Config()}
	if b.config.Known, err = tree.Known(); err != nil {
		t.Fatal(err)
	}
	b.config.Replay = "fitz-conformance run"
	if _, err := fmt.Sscan(orElse(os.Getenv(seedVariable), "1"), &b.config.Seed); err != nil {
		t.Fatalf("%s: %v", seedVariable, err)
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	names := b.declare()
	b.choose(ginkgo.PreviewSpecs("conformance"), names)
	ginkgo.RunSpecs(t, "conformance")
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// batch is the one run of the engine that the specs share.
type batch struct {
	tree     *kit.Tree
	config   engine.Config
	run      *engine.Run
	document *report.Document // of the run, with the same cases
}

// vectorSpec is the text of the spec of the golden vectors.
const vectorSpec = "golden vectors"

// declare makes a spec of every case of the matrix and returns the names of the cases by the texts of their specs. The labels of a spec are
// transport, domain (the folder of the scenario), time and subject: --label-filter 'tcp && observer'. The specs stay in one process, in which
// the engine runs cases beside each other.
func (b *batch) declare() map[string]string {
	names := map[string]string{}
	ginkgo.Describe("scenarios", ginkgo.Serial, ginkgo.Ordered, ginkgo.ContinueOnFailure, func() {
		ginkgo.BeforeAll(b.begin)
		for _, c := range engine.Matrix(b.tree.Scenarios, engine.Selection{}) {
			text := c.Name() + " " + c.Scenario.Title
			names[text] = c.Name()
			labels := ginkgo.Label(c.Transport, path.Dir(c.Scenario.File), string(c.Scenario.Time), string(c.Scenario.Subject), "labels-"+c.Labels, c.Auth)
			ginkgo.It(text, labels, func() { b.tell(c.Name()) })
		}
		ginkgo.It(vectorSpec, ginkgo.Label("vectors"), b.tellVectors)
		ginkgo.AfterAll(b.end)
	})
	return names
}

// choose takes over which specs ginkgo will run.
func (b *batch) choose(preview ginkgo.Report, names map[string]string) {
	vectors := false
	var chosen []string
	for _, spec := range preview.SpecReports {
		name, isCase := names[spec.LeafNodeText]
		switch {
		case spec.State.Is(types.SpecStateSkipped | types.SpecStatePending):
		case isCase:
			chosen = append(chosen, name)
		case spec.LeafNodeText == vectorSpec:
			vectors = true
		}
	}
	switch {
	case len(chosen) == 0:
		b.config.Scenarios = nil
	case len(chosen) < len(names):
		b.config.Select.Cases = chosen
	}
	if !vectors {
		b.config.Vectors = nil
	}
}

// begin runs everything. It builds the programs where they are not yet.
func (b *batch) begin(ctx ginkgo.SpecContext) {
	folder := os.Getenv(binVariable)
	if folder == "" {
		folder = ginkgo.GinkgoT().TempDir()
		_, err := b.tree.GoDriver(ctx, folder)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		_, err = b.tree.OwnBroker(ctx, folder)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
	b.config.Driver, b.config.Broker = kit.Built(folder)
	e, err := engine.New(b.config)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	b.run, err = e.Run(ctx)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	b.document = report.New(b.run, nil)
}

// tell fails with what the command would print of a case. A case that was not run fails.
func (b *batch) tell(name string) {
	at := slices.IndexFunc(b.run.Cases, func(c engine.Case) bool { return c.Name == name })
	gomega.Expect(at).To(gomega.BeNumerically(">=", 0), "the run has left the case out")
	c := &b.run.Cases[at]
	ginkgo.AddReportEntry("took", c.Duration, ginkgo.ReportEntryVisibilityFailureOrVerbose) // the spec itself takes no time
	if c.Verdict != engine.Pass && c.Known == "" {
		ginkgo.Fail(b.document.Describe(&b.document.Cases[at]))
	}
}

func (b *batch) tellVectors() {
	gomega.Expect(b.run.Vectors).NotTo(gomega.BeNil())
	gomega.Expect(b.run.Vectors.Verdict).To(gomega.Equal(engine.Pass), b.run.Vectors.Reason+"\n"+strings.Join(b.run.Vectors.Wrong, "\n"))
}

// end fails with what makes the run a failure beside the cases and vectors that have failed, as processes that are left.
func (b *batch) end() {
	if b.run == nil {
		return // begin has failed
	}
	told := map[string]bool{"vectors": true}
	for i := range b.run.Cases {
		told[b.run.Cases[i].Name] = true
	}
	rest := slices.DeleteFunc(b.run.Complaints(), func(line string) bool {
		of, _, _ := strings.Cut(line, ": ")
		return told[of]
	})
	gomega.Expect(rest).To(gomega.BeEmpty())
}

// A known failure whose case does not exist hides nothing and must go.
func TestKnownFailuresExist(t *testing.T) {
	tree, err := kit.Open("..")
	if err != nil {
		t.Fatal(err)
	}
	known, err := tree.Known()
	if err != nil {
		t.Fatal(err)
	}
	cells := map[string]bool{}
	for _, c := range engine.Matrix(tree.Scenarios, engine.Selection{}) {
		cells[c.Name()] = true
	}
	for _, k := range known {
		if !cells[k.Case] {
			t.Errorf("there is no case %s", k.Case)
		}
	}
}
