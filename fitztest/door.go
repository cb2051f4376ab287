package fitztest

import (
	"net"
	"slices"
	"strconv"

	"github.com/fitzwire/fitz/broker/config"
)

// hostName is the host of the addresses of every broker of this package. No name is looked up: Broker.Dial reaches its own broker.
const hostName = "broker.test"

// mainDoor is the index of the door of Broker.URL.
const mainDoor = 0

// door is one listener of a broker, with the address that clients know it by.
type door struct {
	config       config.Listener
	address, url string
	carries      carrier
}

// doors are the listeners that the options ask for. The ports tell them apart.
func (o *options) doors() []door {
	transport := config.TransportTCP
	if o.ws {
		transport = config.TransportWebSocket
	}
	wanted := []config.Listener{{Name: "memory", Transport: transport, Auth: config.AuthAnonymous}}
	if o.tokens {
		wanted = append(wanted,
			config.Listener{Name: nameToken, Transport: config.TransportTCP, Auth: config.AuthToken},
			config.Listener{Name: nameTokenWebSocket, Transport: config.TransportWebSocket, Auth: config.AuthToken})
	}
	if o.secure != nil {
		wanted = append(wanted, config.Listener{Name: namePlain, Transport: transport, Auth: config.AuthAnonymous})
	}
	var doors []door
	for i, l := range wanted {
		l.Hello = o.hello
		doors = append(doors, o.door(l, i+1))
	}
	return doors
}

// Names of listeners.
const (
	nameToken          = "token"
	nameTokenWebSocket = "token-http"
	namePlain          = "plain" // without TLS, of a broker with it, for what stands past the network
)

func (o *options) door(l config.Listener, port int) door {
	d := door{config: l, address: net.JoinHostPort(hostName, strconv.Itoa(port))}
	secure := o.secure != nil && l.Name != namePlain
	scheme, path := "fitz", ""
	if l.Transport == config.TransportWebSocket {
		scheme, path, d.carries = "ws", "/ws", carriesWebSocket
	}
	if secure {
		scheme, d.carries = scheme+"s", carriesSecrets
	}
	d.url = scheme + "://" + d.address + path
	return d
}

// door finds the door of an address, that of URL for one that is none of the broker's.
func (b *Broker) door(address string) *door {
	return &b.doors[max(mainDoor, slices.IndexFunc(b.doors, func(d door) bool { return d.address == address }))]
}

// named finds the URL of a listener. False: there is none.
func (b *Broker) named(name string) (url string, ok bool) {
	for _, d := range b.doors {
		if d.config.Name == name {
			return d.url, true
		}
	}
	return "", false
}

// plainURL is the address of a listener without TLS that takes anybody.
func (b *Broker) plainURL() string {
	if url, ok := b.named(namePlain); ok {
		return url
	}
	return b.URL()
}
