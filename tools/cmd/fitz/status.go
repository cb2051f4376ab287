package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/fitzwire/fitz/generated/go/adminapi"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/tools/internal/display"
	"github.com/fitzwire/fitz/tools/internal/overview"
)

type statusCmd struct {
	Admin     string        `name:"admin" env:"${env_admin_url}" placeholder:"URL" help:"Address of the admin interface, http:// or https:// (default ${default_admin_url})."`
	TokenFile string        `name:"admin-token-file" env:"${env_admin_token_file}" placeholder:"FILE" completes:"files" help:"File with the admin token. The token itself can stand in the environment variable ${env_admin_token}."`
	Watch     time.Duration `name:"watch" placeholder:"TIME" help:"Show the state again and again, such as every 2s, until interrupted."`
}

// Help is the long help text.
func (*statusCmd) Help() string {
	return `Exit codes: 0 the broker takes new sessions, 1 it drains or answers something else than its state, 69 it cannot be reached or refuses the token.
With TLS, --ca-file, --server-name, --client-cert and --client-key count here, too.`
}

// statusVars are the names that the help text needs.
func statusVars() kong.Vars {
	return kong.Vars{
		"env_admin_url": fitz.EnvAdminURL, "default_admin_url": defaultAdminURL,
		"env_admin_token": settings.SettingAdminToken.Env, "env_admin_token_file": settings.SettingAdminTokenFile.Env,
	}
}

// defaultAdminURL is where a broker on this machine has its admin interface unless told otherwise.
var defaultAdminURL = "http://" + settings.ListenerAdmin.Address

const (
	// statusTimeout is how long an answer may take.
	statusTimeout = 10 * time.Second
	// statusBytesMax bounds an answer, which grows with the families and listeners of a broker and with nothing else.
	statusBytesMax = 4 << 20
	// adminTokenMax bounds the content of a token file.
	adminTokenMax = 8 << 10
	// watchLeast is the shortest time between two looks.
	watchLeast = 100 * time.Millisecond
)

// Run shows the state once, or until interrupted.
func (c *statusCmd) Run(a *app) error {
	if c.Watch != 0 && c.Watch < watchLeast {
		return usage("--watch: %v is less than %v", c.Watch, watchLeast)
	}
	asker, err := c.asker(a)
	if err != nil {
		return err
	}
	defer asker.client.CloseIdleConnections()
	if c.Watch == 0 {
		return a.guarded(func(ctx context.Context) error { return a.showStatus(ctx, asker, a.printStatus) })
	}
	err = a.guarded(func(ctx context.Context) error { return c.watch(ctx, a, asker) })
	if f := (*failure)(nil); errors.As(err, &f) && f.silent && f.code > exitSignal { // interrupted, which is how a watch ends
		return nil
	}
	return err
}

// watch shows the state again and again. A broker that drains goes on being watched; one that cannot be reached ends it.
func (c *statusCmd) watch(ctx context.Context, a *app, asker *asker) error {
	show := a.printStatus
	if file, ok := a.stdout.(*os.File); ok && !a.json && term.IsTerminal(int(file.Fd())) {
		if _, err := file.WriteString(clearAll); err != nil {
			return err
		}
		show = func(s *adminapi.Status) error {
			_, err := file.WriteString(frame(overview.Lines(s)))
			return err
		}
	}
	look := func() error {
		err := a.showStatus(ctx, asker, show)
		if f := (*failure)(nil); errors.As(err, &f) && f.silent {
			return nil // it drains
		}
		return err
	}
	if err := look(); err != nil {
		return err
	}
	return each(ctx, c.Watch, look)
}

// showStatus asks and shows. The error of a broker that drains is silent: the answer says so.
func (a *app) showStatus(ctx context.Context, asker *asker, show func(*adminapi.Status) error) error {
	status, err := asker.status(ctx)
	if err != nil {
		return err
	}
	if err := show(status); err != nil {
		return err
	}
	if status.State != adminapi.StatusStateReady {
		return ended(exitFailure)
	}
	return nil
}

func (a *app) printStatus(s *adminapi.Status) error {
	if a.json {
		return a.printJSON(a.stdout, s)
	}
	for _, line := range overview.Lines(s) {
		if err := a.print(line); err != nil {
			return err
		}
	}
	return nil
}

// asker asks an admin interface.
type asker struct {
	client *http.Client
	url    string
	token  string // empty: none is shown
}

func (c *statusCmd) asker(a *app) (*asker, error) {
	address, err := url.Parse(cmp.Or(c.Admin, defaultAdminURL)) // an empty variable counts as not set
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, usage("--admin: %s is no address such as %s", display.Text(c.Admin), defaultAdminURL)
	}
	if address.User != nil || address.RawQuery != "" || address.Fragment != "" || strings.Trim(address.Path, "/") != "" {
		return nil, usage("--admin: only scheme, host and port belong into an address such as %s", defaultAdminURL)
	}
	token, err := c.token(a)
	if err != nil {
		return nil, err
	}
	config, err := a.security.adminTLS()
	if err != nil {
		return nil, err
	}
	return &asker{
		client: &http.Client{
			Timeout:   statusTimeout,
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: false},
			// The token is for this address and no other.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		url:   address.Scheme + "://" + address.Host + settings.AdminPathStatus,
		token: token,
	}, nil
}

// token is the admin token, empty without one.
func (c *statusCmd) token(a *app) (string, error) {
	if c.TokenFile == "" {
		return a.variable(settings.SettingAdminToken.Env), nil
	}
	file, err := os.Open(c.TokenFile)
	if err != nil {
		return "", usage("--admin-token-file: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(file, adminTokenMax+1))
	switch token := strings.TrimRight(string(content), "\r\n"); {
	case err != nil:
		return "", usage("--admin-token-file: %w", err)
	case len(content) > adminTokenMax:
		return "", usage("--admin-token-file: %s is larger than %d bytes", display.Text(c.TokenFile), adminTokenMax)
	case token == "" || strings.ContainsAny(token, "\r\n\x00 "):
		return "", usage("--admin-token-file: %s does not hold one token", display.Text(c.TokenFile))
	default:
		return token, nil
	}
}

// adminTLS is how an address with TLS is trusted.
func (s *security) adminTLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.ServerName}
	if s.CAFile != "" {
		pem, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, usage("--ca-file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usage("--ca-file: %s holds no certificate in PEM", display.Text(s.CAFile))
		}
	}
	if (s.ClientCert == "") != (s.ClientKey == "") {
		return nil, usage("--client-cert and --client-key belong together")
	}
	if s.ClientCert != "" {
		pair, err := tls.LoadX509KeyPair(s.ClientCert, s.ClientKey)
		if err != nil {
			return nil, usage("--client-cert: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// status asks for the state.
func (k *asker) status(ctx context.Context) (*adminapi.Status, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, usage("--admin: %w", err)
	}
	if k.token != "" {
		request.Header.Set("Authorization", "Bearer "+k.token)
	}
	response, err := k.client.Do(request)
	if err != nil {
		return nil, &failure{code: exitUnavailable, err: fmt.Errorf("the admin interface cannot be reached: %w", err)}
	}
	defer func() { _ = response.Body.Close() }() // what matters was read
	body, err := io.ReadAll(io.LimitReader(response.Body, statusBytesMax+1))
	if err != nil {
		return nil, &failure{code: exitUnavailable, err: fmt.Errorf("the answer of the admin interface is not complete: %w", err)}
	}
	if response.StatusCode != http.StatusOK {
		return nil, refusedStatus(response, body)
	}
	var status adminapi.Status
	if err := json.Unmarshal(body, &status); err != nil || len(body) > statusBytesMax || status.State == "" {
		return nil, fmt.Errorf("%s does not answer with the state of a broker", k.url)
	}
	return &status, nil
}

// refusedStatus is the error for an answer that is not the state.
func refusedStatus(response *http.Response, body []byte) error {
	err := fmt.Errorf("the admin interface answers %s", response.Status)
	var refusal adminapi.Failure
	if json.Unmarshal(body, &refusal) == nil && refusal.Error.Message != "" {
		err = fmt.Errorf("%w: %s", err, refusal.Error.Message)
	}
	if response.StatusCode == http.StatusUnauthorized {
		return &failure{code: exitUnavailable, err: err}
	}
	return err
}
