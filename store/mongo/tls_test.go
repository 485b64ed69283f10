package mongo_test

import (
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/certtest"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// The address's own options make the store speak TLS. If a certificate is not as it should be,
// the store is not opened, and the error says what to do.
func TestTLS(t *testing.T) {
	t.Parallel()
	authority, stranger := certtest.NewAuthority(t), certtest.NewAuthority(t)
	set := mongotest.StartTLS(t, 1, mongotest.TLS{Both: certtest.Both(t, authority.Issue(t, "known")), CA: authority.File})
	strange := certtest.Both(t, stranger.Issue(t, "stranger"))
	good := set.Fresh()
	s := open(t, config(good))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	with := func(key, value string) string {
		u, err := url.Parse(good)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set(key, value)
		if value == "" {
			q.Del(key)
		}
		u.RawQuery = q.Encode()
		return u.String()
	}
	empty := t.TempDir() + "/empty"
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ uri, want string }{
		"unknown authority":               {with("tlsCAFile", stranger.File), "name the file with the authority's certificate in tlsCAFile"},
		"no certificate":                  {with("tlsCertificateKeyFile", ""), "tlsCertificateKeyFile"},
		"another authority's certificate": {with("tlsCertificateKeyFile", strange), "tlsCertificateKeyFile"},
		"no TLS":                          {set.Plain(), "check the address"},
		"no file":                         {with("tlsCAFile", "/nowhere/x"), "/nowhere/x"},
		"an empty file":                   {with("tlsCAFile", empty), "the address of the store"},
	} {
		c := config(test.uri)
		c.Select = 2 * time.Second
		_, err := mongo.Open(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if k := postdate.KindOf(err); k != postdate.KindUnavailable && k != postdate.KindInvalid {
			t.Errorf("%s: the error is of kind %v", name, k)
		}
	}
}
