package link

import (
	"errors"
	"net"
	"net/url"
	"strconv"
)

// target is a parsed address.
type target struct {
	websocket bool
	secure    bool // TLS
	host      string
	hostPort  string
	url       string // WebSocket only
}

// CheckAddress reports whether Dial could use the address: SCHEME://host[:port] and tcp://host[:port] for TCP,
// ws://host[:port][/path] for WebSocket; with TLS they are SCHEMEs, tls and wss. The error is an *Error of kind Invalid.
func CheckAddress(address string, p *Protocol) error {
	_, err := parseTarget(address, p)
	return err
}

func parseTarget(address string, p *Protocol) (target, error) {
	u, err := url.Parse(address)
	if err != nil {
		var parse *url.Error // whose text holds the whole address
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return target{}, &Error{Kind: Invalid, Reason: "address " + strconv.Quote(HideAddress(address)), Err: err}
	}
	shown := HideAddress(address)
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return target{}, invalid("address %q: only scheme, host, port and path are allowed", shown)
	}
	if u.Hostname() == "" {
		return target{}, invalid("address %q: no host", shown)
	}
	t := target{host: u.Hostname()}
	switch u.Scheme {
	case "tcp", p.Scheme:
		err = t.tcp(u, p)
	case "tls", p.Scheme + "s":
		t.secure = true
		err = t.tcp(u, p)
	case "ws", "wss":
		t.secure = u.Scheme == "wss"
		err = t.webSocket(u, p)
	default:
		err = invalid("address %q: scheme must be %[2]s, tcp or ws, or with TLS %[2]ss, tls or wss", shown, p.Scheme)
	}
	return t, err
}

func (t *target) tcp(u *url.URL, p *Protocol) (err error) {
	if u.Path != "" && u.Path != "/" {
		return invalid("address %q: a TCP address has no path", u.String())
	}
	t.hostPort, err = joinPort(u, p.TCPPort)
	return err
}

func (t *target) webSocket(u *url.URL, p *Protocol) (err error) {
	if t.hostPort, err = joinPort(u, p.WebSocketPort); err != nil {
		return err
	}
	path := u.EscapedPath()
	if path == "" {
		path = p.WebSocketPath
	}
	t.websocket, t.url = true, u.Scheme+"://"+t.hostPort+path
	return nil
}

func joinPort(u *url.URL, fallback string) (string, error) {
	port := u.Port()
	if port == "" {
		port = fallback
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", invalid("address %q: port must be 1 to 65535", u.String())
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}
