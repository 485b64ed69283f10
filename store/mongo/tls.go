package mongo

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/certs"
)

// tlsAdvised adds to an error of opening the store what to do if TLS with a server fails. The
// driver then goes on until time runs out, and keeps the reason with the server.
func (s *Store) tlsAdvised(err error) error {
	var selection topology.ServerSelectionError
	if clientOptions(s.c).TLSConfig == nil || !errors.As(err, &selection) {
		return err
	}
	const where = " in the query of --store"
	for _, server := range selection.Desc.Servers {
		if server.LastError == nil {
			continue
		}
		advice := certs.FirstAdvice(server.LastError, "tlsCAFile"+where, "tlsCertificateKeyFile"+where)
		if advice != "" {
			return postdate.E(postdate.KindOf(err), "%w%s", err, advice)
		}
	}
	return err
}
