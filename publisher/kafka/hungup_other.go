//go:build !unix

package kafka

import "net"

// hungUp cannot tell on this system: the loss of a connection shows at its next use.
func hungUp(net.Conn) bool { return false }
