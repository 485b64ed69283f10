package webhook

import (
	"net/netip"
	"strings"

	"github.com/postdate/postdate"
)

// guard says which addresses webhooks may connect to.
type guard struct {
	hosts    map[string]bool // in lower case
	networks []netip.Prefix
}

func newGuard(allow []string) (*guard, error) {
	g := &guard{hosts: map[string]bool{}}
	for _, entry := range allow {
		entry = strings.TrimSpace(entry)
		if prefix, err := netip.ParsePrefix(entry); err == nil {
			g.networks = append(g.networks, prefix.Masked())
			continue
		}
		if addr, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil && addr.Zone() == "" {
			addr = addr.Unmap()
			g.networks = append(g.networks, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		if !isHost(entry) {
			return nil, postdate.E(postdate.KindInvalid, "%q cannot be allowed to webhooks: "+
				"write a host (without port), an address or a network like 10.0.0.0/8", entry)
		}
		g.hosts[hostKey(entry)] = true
	}
	return g, nil
}

// isHost reports whether an operator's word can be the name of a host, without its port.
func isHost(word string) bool { return word != "" && !strings.ContainsAny(word, "/:@*[]%?#= ") }

// hostKey returns a host's name for comparison: in lower case, without the trailing dot.
func hostKey(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// public6 is what IANA has given out of IPv6 for the public internet.
var public6 = netip.MustParsePrefix("2000::/3")

// special lists the networks of IPv4 and of public6 that are not part of the public internet,
// or that lead into others: the registries of RFC 6890 and later additions.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

// translated is the network whose addresses end with an IPv4 address, to which a translator
// (NAT64) forwards the traffic.
var translated = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

// permits reports whether webhooks to the host may connect to the address.
func (g *guard) permits(host string, addr netip.Addr) bool {
	if g.hosts[hostKey(host)] {
		return true
	}
	addr = addr.Unmap().WithZone("")
	if g.allows(addr) {
		return true
	}
	if translated.Contains(addr) {
		b := addr.As16()
		return g.permits(host, netip.AddrFrom4([4]byte(b[12:])))
	}
	if addr.Is6() && !public6.Contains(addr) {
		return false
	}
	for _, network := range special {
		if network.Contains(addr) {
			return false
		}
	}
	return addr.IsValid()
}

func (g *guard) allows(addr netip.Addr) bool {
	for _, network := range g.networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

const remedy = "webhooks may reach public addresses only, and what the operator has named in --webhook-allow"

// checkHost says what is wrong with a URL's host, as far as the URL alone shows it; "" if
// nothing is.
func (g *guard) checkHost(host string) string {
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil && !g.permits(host, addr):
		return "the address " + host + " is not public: " + remedy
	case err != nil && (hostKey(host) == "localhost" || strings.HasSuffix(hostKey(host), ".localhost")) &&
		!g.hosts[hostKey(host)] && !g.allows(netip.AddrFrom4([4]byte{127, 0, 0, 1})):
		return "the host " + host + " is this machine: " + remedy
	}
	return ""
}
