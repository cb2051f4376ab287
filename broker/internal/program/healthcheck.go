package program

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// healthTimeout is how long the broker may take to say that it is there. Container engines give up after 30 s by default.
const healthTimeout = 5 * time.Second

// healthcheck asks the broker that was started with the same configuration whether it is there. It is for places that have no other program
// that could ask, such as a container image without a shell.
func (p *Program) healthcheck(c *config.Config, stderr io.Writer) int {
	if err := healthy(c); err != nil {
		p.Complain(stderr, err)
		return ExitFailed
	}
	return ExitDone
}

func healthy(c *config.Config) error {
	l, err := adminListener(c)
	if err != nil {
		return err
	}
	address, err := localAddress(c, l)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+settings.AdminPathHealthz, nil)
	if err != nil {
		return err
	}
	// The broker is on this machine: no proxy that the environment names is asked, and no connection outlives the question.
	transport := &http.Transport{DisableKeepAlives: true}
	if l.TLS != nil {
		// Nothing secret is sent, and its certificate is for the names that others know it by.
		request.URL.Scheme, transport.TLSClientConfig = "https", &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	}
	client := &http.Client{Transport: transport}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", request.URL, response.Status)
	}
	return nil
}

// adminListener is the one to ask, without TLS where there is such a one.
func adminListener(c *config.Config) (config.Listener, error) {
	admin := slices.DeleteFunc(slices.Clone(c.Listeners), func(l config.Listener) bool { return l.Transport != config.TransportAdmin })
	if len(admin) == 0 {
		return config.Listener{}, errors.New("the admin listener, which would be asked, is off")
	}
	if at := slices.IndexFunc(admin, func(l config.Listener) bool { return l.TLS == nil }); at >= 0 {
		return admin[at], nil
	}
	return admin[0], nil
}

// localAddress is where this machine reaches a listener: one on all interfaces by loopback, one whose port was picked by the system at the
// port of the addresses file.
func localAddress(c *config.Config, l config.Listener) (string, error) {
	address := l.Address()
	if l.Port == 0 {
		var err error
		if address, err = boundAddress(c.AddressesFile, l.Name); err != nil {
			return "", fmt.Errorf("the port of listener %s is not known: %w", l.Name, err)
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}

// boundAddress looks a listener up in the addresses file.
func boundAddress(path, name string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("its port is 0 and there is no --%s", settings.SettingAddressesFile.Flag)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var addresses map[string]string
	if err := json.Unmarshal(text, &addresses); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if addresses[name] == "" {
		return "", fmt.Errorf("%s does not name it", path)
	}
	return addresses[name], nil
}
