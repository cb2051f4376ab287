package program

import (
	"log/slog"
	"net"
)

// notifySocket is the environment name of the socket at which a service manager such as systemd waits to be told (sd_notify(3)).
const notifySocket = "NOTIFY_SOCKET"

// What a service manager is told.
const (
	notifyReady    = "READY=1"
	notifyStopping = "STOPPING=1"
)

// notify tells the service manager, when there is one. A manager that cannot be told shows by itself that it has heard nothing.
func notify(log *slog.Logger, socket, state string) {
	if socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close()
	}
	if err != nil {
		log.Warn("the service manager was not told", "state", state, "error", err)
	}
}
