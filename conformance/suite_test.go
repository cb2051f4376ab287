package conformance

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/kit"
	"github.com/fitzwire/fitz/conformance/report"
)

// The suite asks the Go driver and the brokers of the tree. FITZ_CONFORMANCE_BIN is a folder that holds them already built, so that
// processes that run in parallel do not build them again; FITZ_CONFORMANCE_SEED is the seed.
const (
	binVariable  = "FITZ_CONFORMANCE_BIN"
	seedVariable = "FITZ_CONFORMANCE_SEED"
)

// caseTimeout bounds one case with everything around it.
const caseTimeout = 3 * time.Minute

// suite is what the cases share.
var suite struct {
	tree   *kit.Tree
	config engine.Config
	known  map[string]engine.Known
}

// TestConformance runs every case. Each run of the engine checks by itself that no goroutine of it is left.
func TestConformance(t *testing.T) {
	tree, err := kit.Open("..")
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Mistakes) > 0 {
		t.Fatal(tree.Mistakes)
	}
	known, err := tree.Known()
	if err != nil {
		t.Fatal(err)
	}
	suite.tree, suite.known = tree, map[string]engine.Known{}
	for _, k := range known {
		suite.known[k.Case] = k
	}
	suite.config = tree.Config()
	suite.config.Slots, suite.config.Replay = 1, "fitz-conformance run"
	if _, err := fmt.Sscan(orElse(os.Getenv(seedVariable), "1"), &suite.config.Seed); err != nil {
		t.Fatalf("%s: %v", seedVariable, err)
	}
	declare(tree)
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "conformance")
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// declare makes a spec of every case of the matrix. Its labels are transport, domain (the folder of the scenario), time and subject:
// --label-filter 'tcp && observer'.
func declare(tree *kit.Tree) {
	ginkgo.Describe("scenarios", func() {
		for _, c := range engine.Matrix(tree.Scenarios, engine.Selection{}) {
			labels := ginkgo.Label(c.Transport, path.Dir(c.Scenario.File), string(c.Scenario.Time), string(c.Scenario.Subject), "labels-"+c.Labels, c.Auth)
			ginkgo.It(c.Name()+" "+c.Scenario.Title, labels, func(ctx ginkgo.SpecContext) { runCase(ctx, c) }, ginkgo.SpecTimeout(caseTimeout))
		}
	})
	ginkgo.It("golden vectors", ginkgo.Label("vectors"), func(ctx ginkgo.SpecContext) {
		config := suite.config
		config.Scenarios = nil
		e, err := engine.New(config)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		run, err := e.Run(ctx)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(run.Vectors.Verdict).To(gomega.Equal(engine.Pass), strings.Join(run.Vectors.Wrong, "\n"))
	}, ginkgo.SpecTimeout(caseTimeout))
}

// The programs are built once and shared by all processes of a parallel run.
var _ = ginkgo.SynchronizedBeforeSuite(func(ctx ginkgo.SpecContext) []byte {
	if folder := os.Getenv(binVariable); folder != "" {
		return []byte(folder)
	}
	folder, err := os.MkdirTemp("", "fitz-conformance-")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(os.RemoveAll, folder)
	_, err = suite.tree.GoDriver(ctx, folder)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = suite.tree.OwnBroker(ctx, folder)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return []byte(folder)
}, func(folder []byte) {
	suite.config.Driver, suite.config.Broker = kit.Built(string(folder))
})

// runCase runs one cell of the matrix and fails with what the command would print.
func runCase(ctx context.Context, c engine.Cell) {
	config := suite.config
	config.Vectors = nil
	config.Select = engine.Selection{
		Scenarios: []string{c.Scenario.ID}, Transports: []string{c.Transport}, Labels: []string{c.Labels}, Auth: []string{c.Auth},
	}
	if k, listed := suite.known[c.Name()]; listed {
		config.Known = []engine.Known{k}
	}
	e, err := engine.New(config)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	run, err := e.Run(ctx)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	if run.OK() {
		return
	}
	document := report.New(run, nil)
	for i := range document.Cases {
		ginkgo.Fail(document.Describe(&document.Cases[i]))
	}
	ginkgo.Fail(strings.Join(run.Complaints(), "\n"))
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
