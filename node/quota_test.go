package node_test

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store/storetest"
)

// However many clients schedule at a time, a tenant has no more pending than it may, and another one
// is not held up. A limit that an administrator changes holds at once.
func TestQuotaOfATenant(t *testing.T) {
	c := config(t)
	c.AdminKey, c.Quota.PendingMax = adminKey, 100
	n, _ := start(t, c)
	admin := clientWith(t, n, adminKey)
	acme, other := clientWith(t, n, keyFor(t, admin, "acme").Text), clientWith(t, n, keyFor(t, admin, "other").Text)
	at := time.Now().Add(time.Hour)
	schedule := func(c *client.Client, id string) error {
		results, err := c.ScheduleAll(patient(t), []client.Message{{ScheduleID: id, Channel: "inbox:a", ExecutionTime: at, Payload: []byte("1")}})
		if err != nil {
			return err
		}
		return results[0].Err()
	}
	var callers sync.WaitGroup
	for caller := range 16 {
		callers.Go(func() {
			for i := range 20 {
				if err := schedule(acme, fmt.Sprint(caller, "-", i)); err != nil && client.TypeOf(err) != client.Limited {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if n := pendingOf(t, acme); n != 100 {
		t.Errorf("%d messages are pending, want 100", n)
	}
	if err := schedule(other, "a"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	more := int64(101)
	if set, err := admin.ChangeTenant(patient(t), "acme", client.TenantChange{PendingMax: &more}); err != nil || set.PendingMax != 101 || set.Pending != 100 {
		t.Fatalf("the limits are %+v, %v", set, err)
	}
	if err := schedule(acme, "one-more"); err != nil {
		t.Errorf("after the limit was raised: %v", err)
	}
	if err := schedule(acme, "beyond"); client.TypeOf(err) != client.Limited {
		t.Errorf("beyond it: %v", err)
	}
	if n := pendingOf(t, acme); n != 101 {
		t.Errorf("%d messages are pending, want 101", n)
	}
}

// pendingOf counts a tenant's pending messages by listing them.
func pendingOf(t *testing.T, c *client.Client) (n int) {
	t.Helper()
	for _, err := range c.List(patient(t), client.Filter{Status: client.Pending}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func TestLimitsThatCannotBe(t *testing.T) {
	for want, l := range map[string]quota.Limits{
		"--tenant-requests-per-second must be 0 (no limit) or between 0.000001 and 1000000": {RequestsPerSecond: 1e-7},
		"--tenant-messages-per-second must be 0":                                            {MessagesPerSecond: math.NaN()},
		"--tenant-pending-max is -1":                                                        {PendingMax: -1},
		"--tenant-bytes-max is -1":                                                          {BytesMax: -1},
		"--tenant-channels-max is -1":                                                       {ChannelsMax: -1},
	} {
		c := config(t)
		c.Quota = l
		storetest.Refused(t, c.Validate(), postdate.KindInvalid, want)
	}
}

// What is set on one node holds on the others, and each allows its part of a rate.
func TestRatesHoldOnAllNodes(t *testing.T) {
	m := pairInMemory(t)
	defer m.remove("a")
	defer m.remove("b")
	rate := 100.0
	if _, err := clientWith(t, m.nodes["a"], "").ChangeTenant(patient(t), "default", client.TenantChange{RequestsPerSecond: &rate}); err != nil {
		t.Fatal(err)
	}
	for name, n := range m.nodes {
		policy := ""
		err := nodetest.Poll(patient(t), func() (bool, error) {
			res, err := http.Get("http://" + n.Addr() + "/v1/messages/none")
			if err != nil {
				return false, err
			}
			policy = res.Header.Get("RateLimit-Policy")
			return policy == `"requests";q=50;w=1`, res.Body.Close()
		})
		if err != nil {
			t.Errorf("node %s says %q: %v", name, policy, err)
		}
	}
}
