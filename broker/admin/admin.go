// Package admin serves health, metrics and the lease inventory over HTTP, for people and tools on the same machine.
package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fitzwire/fitz/generated/go/adminapi"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// Inventory calls yield for every held lease of the family that the selector matches, of one moment, until yield returns false.
type Inventory func(ctx context.Context, family uint32, selector pattern.Selector, yield func(adminapi.Lease) bool) error

// Options are what the handler needs.
type Options struct {
	// Ready reports whether new sessions are taken.
	Ready     func() bool
	Metrics   prometheus.Gatherer
	Inventory Inventory
	// Status looks at the broker.
	Status func() adminapi.Status
	// Refused, when not nil, is told why a request was refused before its path was looked at.
	Refused func(reason string)
	// Port is the port that the listener is bound to; requests for another one are refused.
	Port uint16
	// Token returns the bearer token that every request must carry but those for health. nil: none is asked for.
	Token func() string
	// AnyHost says that the listener can be reached from other machines, under names that it does not know. It needs a Token.
	AnyHost bool
}

// Handler returns the admin interface. Requests whose Host header is not a loopback name or address with the bound port are
// refused, so that a web page cannot reach it through a name that it controls (DNS rebinding). Where any host is accepted it is the
// token that such a page does not have.
func Handler(o Options) http.Handler {
	pages := o.pages()
	refused := o.Refused
	if refused == nil {
		refused = func(string) {}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !(o.AnyHost && o.Token != nil) && !local(r.Host, o.Port) {
			refused(RefusedHost)
			refuse(w, http.StatusForbidden, "host.invalid", "", "the Host header must name this machine")
			return
		}
		if o.Token != nil && !open(r.URL.Path) && !authorized(r, o.Token()) {
			refused(RefusedToken)
			unauthorized(w)
			return
		}
		page := pages[r.URL.Path]
		switch {
		case page == nil: // a multiplexer would answer it, and the next one, in words of its own
			refuse(w, http.StatusNotFound, "path.unknown", "", "there is no such path")
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			refuse(w, http.StatusMethodNotAllowed, "method.invalid", "", "nothing can be changed here: the method must be GET or HEAD")
		default:
			page.ServeHTTP(w, r)
		}
	})
}

// Reasons for which a request is refused before its path is looked at.
const (
	RefusedHost  = "host"
	RefusedToken = "token"
)

// pages are what the interface serves, by path. spec/admin.yaml describes them.
func (o Options) pages() map[string]http.Handler {
	return map[string]http.Handler{
		settings.AdminPathHealthz: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") }),
		settings.AdminPathReadyz: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if o.Ready() {
				answer(w, http.StatusOK, "ready")
				return
			}
			answer(w, http.StatusServiceUnavailable, "draining")
		}),
		settings.AdminPathMetrics: promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{}),
		settings.AdminPathStatus:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, http.StatusOK, o.Status()) }),
		settings.AdminPathLeases:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { leases(w, r, o.Inventory) }),
	}
}

// Paths returns the paths that the interface serves, in no order.
func Paths() []string {
	return slices.Collect(maps.Keys(Options{Metrics: prometheus.NewRegistry()}.pages()))
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, text) // the client may be gone
}

// local reports whether a Host header names a loopback name or address with that port.
func local(host string, port uint16) bool {
	name, number, err := net.SplitHostPort(host)
	if err != nil {
		name, number = strings.Trim(host, "[]"), "80"
	}
	if number != strconv.Itoa(int(port)) {
		return false
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Unmap().IsLoopback()
}

func refuse(w http.ResponseWriter, status int, code, reason, message string) {
	answerJSON(w, status, adminapi.Failure{Error: adminapi.FailureDetail{Code: code, Reason: reason, Message: message}})
}

func answerJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// leases streams the inventory: memory is bounded by one item, and a client that reads slowly holds nothing but a kept snapshot.
func leases(w http.ResponseWriter, r *http.Request, inventory Inventory) {
	query := r.URL.Query()
	family, err := strconv.ParseUint(query.Get("family"), 10, 32)
	if err != nil || family == 0 {
		refuse(w, http.StatusBadRequest, "family.invalid", "", "family must be a number from 1 on")
		return
	}
	selector, err := route.Lease.ParseSelector(query.Get("selector"))
	if err != nil {
		reason := ""
		var mistake *pattern.Error
		if errors.As(err, &mistake) {
			reason = mistake.Reason.String()
		}
		refuse(w, http.StatusBadRequest, "selector.invalid", reason, err.Error())
		return
	}
	limit := uint64(math.MaxUint64)
	if query.Has("limit") {
		if limit, err = strconv.ParseUint(query.Get("limit"), 10, 32); err != nil || limit == 0 {
			refuse(w, http.StatusBadRequest, "limit.invalid", "", "limit must be a number from 1 on")
			return
		}
	}
	stream := &listing{w: w, controller: http.NewResponseController(w), out: bufio.NewWriter(w), limit: limit}
	if err := inventory(r.Context(), uint32(family), selector, stream.add); err != nil && !stream.begun {
		refuse(w, http.StatusServiceUnavailable, "inventory.unavailable", "", "inventory unavailable")
		return
	} else if err != nil {
		panic(http.ErrAbortHandler) // the way of net/http to tell the client that the body is not complete
	}
	stream.end()
}

// writeWindow is how long a client may take for one part of a listing.
const writeWindow = 10 * time.Second

// listing writes {"leases":[...],"truncated":...} while the items come.
type listing struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	out        *bufio.Writer
	begun      bool
	written    uint64
	limit      uint64
	truncated  bool
}

func (l *listing) begin() {
	if l.begun {
		return
	}
	l.begun = true
	l.w.Header().Set("Content-Type", "application/json")
	_, _ = l.out.WriteString(`{"leases":[`) // errors stay in the buffer and show in add
}

func (l *listing) add(lease adminapi.Lease) bool {
	l.begin()
	if l.written == l.limit {
		l.truncated = true
		return false
	}
	item, err := json.Marshal(lease)
	if err != nil {
		return false
	}
	if l.written > 0 {
		_ = l.out.WriteByte(',')
	}
	l.written++
	if l.out.Available() < len(item) {
		_ = l.controller.SetWriteDeadline(time.Now().Add(writeWindow))
	}
	_, err = l.out.Write(item)
	return err == nil
}

func (l *listing) end() {
	l.begin()
	_, _ = fmt.Fprintf(l.out, "],\"truncated\":%t}\n", l.truncated)
	_ = l.controller.SetWriteDeadline(time.Now().Add(writeWindow))
	_ = l.out.Flush()
}
