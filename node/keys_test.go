package node_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

const adminKey = "an-administrator-of-32-characters"

// clientWith makes a client of a node that sends a key.
func clientWith(t testing.TB, n *node.Node, key string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Servers: []string{n.Addr()}, APIKey: key, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// keyFor makes a key for reading and writing a tenant's messages.
func keyFor(t testing.TB, admin *client.Client, tenant string) client.NewKey {
	t.Helper()
	key, err := admin.CreateKey(patient(t), client.KeyWish{Tenant: tenant, Scopes: []string{"sched:r", "sched:w"}})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// awaitAccess waits until a node accepts a key, or until it refuses it.
func awaitAccess(t testing.TB, c *client.Client, accepted bool) {
	t.Helper()
	err := nodetest.Poll(patient(t), func() (bool, error) {
		_, err := c.Get(t.Context(), "none")
		switch client.TypeOf(err) {
		case client.NotFound:
			return accepted, nil
		case client.Unauthorized:
			return !accepted, nil
		}
		return false, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// On MongoDB, a key that was made or revoked on one node holds on the other soon, and the last
// use on either is seen on both.
func TestKeysHoldOnAllNodes(t *testing.T) {
	uri := mongotest.Fresh(t)
	m := newTeam(t, func(c *node.Config, _ *node.Parts) { c.Store, c.Buckets, c.AdminKey = uri, 8, adminKey })
	a, b := m.add("a"), m.add("b")
	defer m.remove("a")
	defer m.remove("b")
	admin := clientWith(t, a, adminKey)
	var slowest time.Duration
	const rounds = 10
	for range rounds {
		key := keyFor(t, admin, "acme")
		onB := clientWith(t, b, key.Text)
		awaitAccess(t, onB, true)
		if err := admin.RevokeKey(patient(t), key.ID); err != nil {
			t.Fatal(err)
		}
		revoked := time.Now()
		if _, err := clientWith(t, a, key.Text).Get(t.Context(), "none"); client.TypeOf(err) != client.Unauthorized {
			t.Fatalf("the node that revoked it: %v", err)
		}
		awaitAccess(t, onB, false)
		slowest = max(slowest, time.Since(revoked))
	}
	t.Logf("the other node refused %d revoked keys, the last after %v", rounds, slowest)
}

// Two tenants have a message with the same id for an inbox of the same name: each gets its own.
// Keys outlive the process, and revoked ones do not come back.
func TestTenantsShareANode(t *testing.T) {
	c := config(t)
	c.AdminKey = adminKey
	n, err := node.Start(patient(t), c)
	if err != nil {
		t.Fatal(err)
	}
	admin := clientWith(t, n, adminKey)
	keys := map[string]client.NewKey{"a": keyFor(t, admin, "a"), "b": keyFor(t, admin, "b"), "gone": keyFor(t, admin, "a")}
	if err := admin.RevokeKey(patient(t), keys["gone"].ID); err != nil {
		t.Fatal(err)
	}
	read := func(n *node.Node) {
		t.Helper()
		for _, tenant := range []string{"a", "b"} {
			page, err := clientWith(t, n, keys[tenant].Text).ReadInbox(patient(t), "all", client.InboxRead{Wait: 30 * time.Second})
			if err != nil || len(page.Messages) != 1 || string(page.Messages[0].Payload) != `"of `+tenant+`"` {
				t.Errorf("%s reads %+v, %v", tenant, page, err)
			}
		}
		if page, err := clientWith(t, n, adminKey).ReadInbox(patient(t), "all", client.InboxRead{}); err != nil || len(page.Messages) != 0 {
			t.Errorf("the default tenant reads %+v, %v", page, err)
		}
	}
	for _, tenant := range []string{"a", "b"} {
		m := client.Message{ScheduleID: "same", Channel: "inbox:all", ExecutionTime: time.Now(), Payload: []byte(`"of ` + tenant + `"`)}
		if _, err := clientWith(t, n, keys[tenant].Text).Schedule(patient(t), m); err != nil {
			t.Fatal(err)
		}
	}
	read(n)
	stop(t, n)
	again, _ := start(t, c)
	read(again)
	if _, err := clientWith(t, again, keys["gone"].Text).Get(patient(t), "same"); client.TypeOf(err) != client.Unauthorized {
		t.Errorf("a revoked key after a restart: %v", err)
	}
	all, err := clientWith(t, again, adminKey).Keys(context.Background())
	if err != nil || len(all) != 2 || all[0].LastUsedAt.IsZero() || all[1].LastUsedAt.IsZero() {
		t.Errorf("the keys are %+v, %v", all, err)
	}
}

// A node that is restarted without --admin-key over a store with keys says so, and no other does.
func TestKeysOfAStoreThatAreNotAskedFor(t *testing.T) {
	c := config(t)
	var log bytes.Buffer
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	for _, step := range []struct {
		adminKey string
		makes    int
		want     string // "": nothing
	}{
		{"", 0, ""}, {adminKey, 2, ""}, {"", 0, `"the store has API keys, and nobody is asked for one: give --admin-key" keys=2`},
	} {
		log.Reset()
		c.AdminKey = step.adminKey
		n, err := node.Start(patient(t), c)
		if err != nil {
			t.Fatal(err)
		}
		for range step.makes {
			keyFor(t, clientWith(t, n, adminKey), "acme")
		}
		stop(t, n)
		if got := strings.Contains(log.String(), "nobody is asked"); got != (step.want != "") || !strings.Contains(log.String(), step.want) {
			t.Errorf("with the key %q the log is\n%s", step.adminKey, &log)
		}
	}
}

// With --admin-key a node may serve other machines, and asks even its own for a key.
func TestAdminKeyOpensTheNetwork(t *testing.T) {
	c := config(t)
	c.HTTP, c.AdminKey = "0.0.0.0:0", adminKey
	n, _ := start(t, c)
	nobody := clientWith(t, n, "")
	for name, err := range map[string]error{"healthz": nobody.Health(patient(t)), "readyz": nobody.Ready(patient(t))} {
		if err != nil {
			t.Errorf("%s without a key: %v", name, err)
		}
	}
	if _, err := nobody.Cluster(patient(t)); client.TypeOf(err) != client.Unauthorized {
		t.Errorf("the cluster without a key: %v", err)
	}
}
