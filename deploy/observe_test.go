package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"gopkg.in/yaml.v3"

	specification "github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/codegen/model"
)

const (
	dashboardFile = "grafana/fitz-dashboard.json"
	alertsFile    = "prometheus/alerts.yml"
)

// exempt are metrics that the dashboard does not show, with the reason.
var exempt = map[string]string{}

// known are the metrics that a broker exports: those of the specification, and those of Go and the process.
type known struct {
	spec  map[string]*model.Metric
	other map[string]bool
}

func knownMetrics(t *testing.T) known {
	t.Helper()
	spec, list, err := specification.Load(root + "/spec/fitz.yaml")
	if err != nil || len(list) > 0 {
		t.Fatalf("%v\n%s", err, list)
	}
	k := known{map[string]*model.Metric{}, map[string]bool{}}
	for _, group := range spec.Metrics {
		for _, m := range group.Metrics {
			k.spec[m.Name] = m
		}
	}
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		descriptions := make(chan *prometheus.Desc)
		go func() {
			defer close(descriptions)
			c.Describe(descriptions)
		}()
		for d := range descriptions {
			k.other[name.FindStringSubmatch(d.String())[1]] = true
		}
	}
	if len(k.other) < 20 {
		t.Fatalf("only %d metrics of Go and the process", len(k.other))
	}
	return k
}

var (
	metricName = regexp.MustCompile(`\b(?:fitz|go|process)_[a-z0-9_]+`)
	selection  = regexp.MustCompile(`\b((?:fitz|go|process)_[a-z0-9_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-zA-Z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	grouping   = regexp.MustCompile(`\b(?:by|on|without|ignoring)\s*\(([^)]*)\)`)
	overTime   = regexp.MustCompile(`\b(rate|increase|irate|changes|delta|deriv)\((fitz_[a-z0-9_]+)`)
	inText     = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}`)
)

// targetLabels come from whoever scrapes.
var targetLabels = []string{"job", "instance"}

// metric finds the metric of a series and the labels that it can have.
func (k known) metric(series string) (m *model.Metric, labels []string, err error) {
	for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
		base, cut := strings.CutSuffix(series, suffix)
		m := k.spec[base]
		if !cut || m == nil {
			continue
		}
		if isHistogram := m.Type == "histogram"; isHistogram != (suffix != "") {
			return nil, nil, fmt.Errorf("%s is a %s", base, m.Type)
		}
		labels := slices.Concat(m.Labels, targetLabels)
		if suffix == "_bucket" {
			labels = append(labels, "le")
		}
		return m, labels, nil
	}
	for _, suffix := range []string{"", "_sum", "_count"} {
		if base, cut := strings.CutSuffix(series, suffix); cut && k.other[base] {
			return nil, slices.Concat([]string{"quantile"}, targetLabels), nil
		}
	}
	return nil, nil, fmt.Errorf("there is no metric %s", series)
}

// check looks at one expression and the texts that show its labels, and returns the metrics of the specification that it uses.
func (k known) check(expression string, texts ...string) (used []string, problems []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	usable := slices.Clone(targetLabels)
	names := metricName.FindAllString(expression, -1)
	if len(names) == 0 {
		problem("no metric")
	}
	for _, name := range names {
		m, labels, err := k.metric(name)
		if err != nil {
			problem("%v", err)
			continue
		}
		usable = append(usable, labels...)
		if m != nil {
			used = append(used, m.Name)
		}
	}
	for _, s := range selection.FindAllStringSubmatch(expression, -1) {
		_, labels, _ := k.metric(s[1])
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(labels, m[1]) {
				problem("%s has no label %s", s[1], m[1])
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expression, -1) {
		for label := range strings.SplitSeq(g[1], ",") {
			if label = strings.TrimSpace(label); !slices.Contains(usable, label) {
				problem("nothing has the label %s", label)
			}
		}
	}
	for _, call := range overTime.FindAllStringSubmatch(expression, -1) {
		m, _, err := k.metric(call[2])
		counts := err == nil && (m.Type == "counter" || m.Type == "histogram")
		if grows := call[1] == "rate" || call[1] == "increase" || call[1] == "irate"; err == nil && grows != counts {
			problem("%s of %s, which is a %s", call[1], call[2], m.Type)
		}
	}
	if strings.Count(expression, "(") != strings.Count(expression, ")") || strings.Count(expression, "{") != strings.Count(expression, "}") {
		problem("brackets do not close")
	}
	for _, text := range texts {
		for _, label := range inText.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(usable, label[1]) {
				problem("the text shows the label %s, which nothing has", label[1])
			}
		}
	}
	return used, problems
}

// panel is what is looked at of a panel of Grafana.
type panel struct {
	ID          int
	Type, Title string
	Description string
	GridPos     struct{ H, W, X, Y int }
	Datasource  struct{ UID string }
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Datasource                struct{ UID string }
	}
}

// Every metric that the dashboard names exists with the labels that it uses, and it shows every metric of the broker, or there is a
// reason why not.
func TestDashboard(t *testing.T) {
	k := knownMetrics(t)
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Title, UID    string
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Type, Definition string }
		}
		Panels []panel
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.Title == "" || dashboard.UID == "" || dashboard.SchemaVersion < 39 || dashboard.Templating.List[0].Type != "datasource" {
		t.Errorf("head %q %q %d", dashboard.Title, dashboard.UID, dashboard.SchemaVersion)
	}
	for _, v := range dashboard.Templating.List[1:] {
		if _, problems := k.check(v.Definition); len(problems) > 0 {
			t.Errorf("variable %s: %v", v.Name, problems)
		}
	}
	shown, rows := map[string]bool{}, []string{}
	ids, places := map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("%s: the id %d stands twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := places[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %s or outside", p.Title, other)
				}
				places[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Description == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("%s has no description, targets or data source", p.Title)
		}
		for _, target := range p.Targets {
			used, problems := k.check(target.Expr, target.LegendFormat)
			if len(problems) > 0 || target.RefID == "" || target.Datasource.UID != "${datasource}" {
				t.Errorf("%s: %s: %v", p.Title, target.Expr, problems)
			}
			for _, name := range used {
				shown[name] = true
			}
		}
	}
	for name := range k.spec {
		if reason, out := exempt[name]; out == shown[name] || out && reason == "" {
			t.Errorf("%s is shown: %t, exempt: %t (%s)", name, shown[name], out, reason)
		}
	}
	for name := range exempt {
		if k.spec[name] == nil {
			t.Errorf("there is no metric %s to leave out", name)
		}
	}
	want := []string{"Broker", "Sessions", "Leases", "Lateness of expiry", "Queue depths", "Refusals", "Slow consumers", "Memory and garbage collection", "TLS and reload"}
	if !slices.Equal(rows, want) {
		t.Errorf("rows %v", rows)
	}
}

// Every rule for alerts names metrics and labels that exist, and says why it matters.
func TestAlerts(t *testing.T) {
	k := knownMetrics(t)
	file, err := os.Open(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var alerts struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	if err := decoder.Decode(&alerts); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, group := range alerts.Groups {
		for _, r := range group.Rules {
			summary, description := r.Annotations["summary"], r.Annotations["description"]
			_, problems := k.check(r.Expr, summary, description)
			if len(problems) > 0 {
				t.Errorf("%s: %v", r.Alert, problems)
			}
			if !strings.HasPrefix(r.Alert, "Fitz") || seen[r.Alert] || !slices.Contains([]string{"page", "ticket"}, r.Labels["severity"]) {
				t.Errorf("%q: severity %q, seen before: %t", r.Alert, r.Labels["severity"], seen[r.Alert])
			}
			if summary == "" || len(description) < 60 || !strings.HasSuffix(description, ".") {
				t.Errorf("%s: summary %q, description %q", r.Alert, summary, description)
			}
			seen[r.Alert] = true
		}
	}
	if len(seen) < 15 {
		t.Errorf("only %d rules", len(seen))
	}
}

// The checks of expressions notice what they are for.
func TestExpressionsAreChecked(t *testing.T) {
	k := knownMetrics(t)
	for expression, want := range map[string]string{
		`fitz_nothing`:                                     "there is no metric fitz_nothing",
		`fitz_lease_held{owner="w"}`:                       "no label owner",
		`sum by (route) (fitz_lease_held)`:                 "nothing has the label route",
		`rate(fitz_lease_held[5m])`:                        "which is a gauge",
		`changes(fitz_lease_expired_total[5m])`:            "which is a counter",
		`fitz_lease_expiry_lag_seconds > 1`:                "is a histogram",
		`rate(fitz_lease_held_bucket[5m])`:                 "is a gauge",
		`sum(fitz_lease_held`:                              "brackets",
		`go_nothing`:                                       "there is no metric",
		`1 + 1`:                                            "no metric",
		`sum by (le) (rate(fitz_lease_held_total[1m]))`:    "there is no metric",
		`sum by (le) (rate(fitz_lease_expired_total[1m]))`: "nothing has the label le",
	} {
		if _, problems := k.check(expression); !strings.Contains(strings.Join(problems, "; "), want) {
			t.Errorf("%s: %v, want %q", expression, problems, want)
		}
	}
	if _, problems := k.check("fitz_lease_held", "{{owner}} {{ $labels.instance }}"); len(problems) != 1 {
		t.Errorf("legend: %v", problems)
	}
}
