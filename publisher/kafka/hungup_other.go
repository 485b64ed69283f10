//go:build !unix

package kafka

import "net"

// hungUp cannot tell here: a lost connection shows when it is used.
func hungUp(net.Conn) bool { return false }
