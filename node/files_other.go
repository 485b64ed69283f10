//go:build !unix

package node

func filesLimit() uint64 { return filesDefault }
