package publisher

import "regexp"

// places match what errors of networks, certificates and brokers say about a network: "dial tcp
// 10.0.0.5:80: ", "read tcp 10.0.0.9:4711->10.0.0.5:80: ", "lookup broker on 10.0.0.2:53: ",
// "certificate is valid for broker, not 10.0.0.5", "node 'rabbit@broker'".
var (
	places       = regexp.MustCompile(`\b(dial|read|write|TLS with|lookup)( (tcp|udp)[46]?)? \S+( on \S+)?: `)
	certificates = regexp.MustCompile(`x509: (certificate is (not )?valid|cannot validate certificate) for [^;]*`)
	nodes        = regexp.MustCompile(`\bnode '[^'@]*@[^']*'`)
)

// WithoutPlaces returns an error's text without the addresses and names that it tells of the
// operator's network. A tenant reads the reasons of results, and these are nothing for it.
func WithoutPlaces(text string) string {
	text = places.ReplaceAllString(text, "$1: ")
	text = certificates.ReplaceAllString(text, "the certificate is for another name")
	return nodes.ReplaceAllString(text, "a node")
}
