package node

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/semaphore"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// looksMax is how many looks at what is upcoming or pending run at a time: each may have to name thousands of channels
// of 2 KiB, and the store has other work. The others wait.
const looksMax = 4

// measured is a store that counts and times the important calls. Of those that look at what is upcoming or pending it
// lets few run at a time.
type measured struct {
	store.Store
	looks   *semaphore.Weighted // of looksMax
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
}

func measure(s store.Store, r prometheus.Registerer) *measured {
	auto := promauto.With(r)
	auto.NewGauge(prometheus.GaugeOpts{
		Name: "postdate_buckets", Help: "Buckets of the store, held by a node or not.",
	}).Set(float64(s.Buckets()))
	return &measured{Store: s, looks: semaphore.NewWeighted(looksMax),
		seconds: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "postdate_store_seconds", Help: "Duration of store operations, the wait for the disk included.",
			Buckets: []float64{.0001, .0002, .0005, .001, .002, .005, .01, .025, .05, .1, .5, 1, 5},
		}, []string{"operation"}),
		errors: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_store_errors_total",
			Help: "Store operations that failed or whose outcome is unknown, by kind.",
		}, []string{"operation", "kind"}),
	}
}

// timed starts a measurement; the func that it returns ends it.
func (m *measured) timed(operation string) func(err error) {
	start := time.Now()
	return func(err error) {
		m.seconds.WithLabelValues(operation).Observe(time.Since(start).Seconds())
		switch kind := postdate.KindOf(err); {
		case err == nil:
		case kind == postdate.KindInternal, kind == postdate.KindFull, kind == postdate.KindUnavailable,
			kind == postdate.KindUnknown, kind == postdate.KindFenced:
			m.errors.WithLabelValues(operation, kind.String()).Inc()
		}
	}
}

func (m *measured) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	done := m.timed("insert")
	results := m.Store.Insert(ctx, messages)
	done(firstError(results, func(r store.Inserted) error { return r.Err }))
	return results
}

func (m *measured) Get(ctx context.Context, key postdate.Key) (postdate.Record, error) {
	done := m.timed("get")
	rec, err := m.Store.Get(ctx, key)
	done(err)
	return rec, err
}

func (m *measured) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	done := m.timed("replace")
	rec, err := m.Store.Replace(ctx, next, was)
	done(err)
	return rec, err
}

func (m *measured) Pause(ctx context.Context, series postdate.Key, ifVersion uint64) error {
	done := m.timed("pause")
	err := m.Store.Pause(ctx, series, ifVersion)
	done(err)
	return err
}

func (m *measured) Trigger(ctx context.Context, series postdate.Key, ifVersion uint64,
	occurrence postdate.Time) error {
	done := m.timed("trigger")
	err := m.Store.Trigger(ctx, series, ifVersion, occurrence)
	done(err)
	return err
}

func (m *measured) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	done := m.timed("cancel")
	results := m.Store.Cancel(ctx, keys, at)
	done(firstError(results, func(r store.Cancelled) error { return r.Err }))
	return results
}

func (m *measured) CancelVersions(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Cancelled {
	done := m.timed("cancel")
	results := m.Store.CancelVersions(ctx, some, at)
	done(firstError(results, func(r store.Cancelled) error { return r.Err }))
	return results
}

func (m *measured) Forget(ctx context.Context, key postdate.Key, ifVersion uint64) error {
	done := m.timed("forget")
	err := m.Store.Forget(ctx, key, ifVersion)
	done(err)
	return err
}

func (m *measured) Redrive(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	done := m.timed("redrive")
	results := m.Store.Redrive(ctx, some, at)
	done(firstError(results, func(r store.Redriven) error { return r.Err }))
	return results
}

func (m *measured) Purge(ctx context.Context, some []store.Versioned) []error {
	done := m.timed("purge")
	results := m.Store.Purge(ctx, some)
	done(firstError(results, func(err error) error { return err }))
	return results
}

func (m *measured) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	done := m.timed("list")
	page, err := m.Store.List(ctx, q)
	done(err)
	return page, err
}

func (m *measured) Upcoming(ctx context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	if err := m.takeLook(ctx); err != nil {
		return nil, err
	}
	defer m.looks.Release(1)
	done := m.timed("upcoming")
	slots, err := m.Store.Upcoming(ctx, q)
	done(err)
	return slots, err
}

func (m *measured) Pending(ctx context.Context, tenant string, at postdate.Time) (store.Pending, error) {
	if err := m.takeLook(ctx); err != nil {
		return store.Pending{}, err
	}
	defer m.looks.Release(1)
	done := m.timed("pending")
	found, err := m.Store.Pending(ctx, tenant, at)
	done(err)
	return found, err
}

// takeLook waits until fewer than looksMax run. Neither the wait nor a refusal is one of the store.
func (m *measured) takeLook(ctx context.Context) error {
	if m.looks.Acquire(ctx, 1) != nil {
		return postdate.E(postdate.KindUnavailable,
			"too many look at what is upcoming or pending: nothing was read, try again in a moment")
	}
	return nil
}

func (m *measured) Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult {
	done := m.timed("claim")
	results := m.Store.Claim(ctx, claims)
	done(firstError(results, func(r store.ClaimResult) error { return r.Err }))
	return results
}

func (m *measured) Settle(ctx context.Context, settlements []store.Settlement) error {
	done := m.timed("settle")
	err := m.Store.Settle(ctx, settlements)
	done(err)
	return err
}

func (m *measured) Renew(ctx context.Context, lease bucket.Lease) (postdate.Time, error) {
	done := m.timed("renew")
	now, err := m.Store.Renew(ctx, lease)
	done(err)
	return now, err
}

func (m *measured) AppendInbox(ctx context.Context, messages []store.InboxMessage) error {
	done := m.timed("append_inbox")
	err := m.Store.AppendInbox(ctx, messages)
	done(err)
	return err
}

// Deliver implements store.Deliverer, if the store does.
func (m *measured) Deliver(ctx context.Context, deliveries []store.InboxDelivery) []error {
	done := m.timed("deliver")
	errs := m.Store.(store.Deliverer).Deliver(ctx, deliveries)
	done(firstError(errs, func(err error) error { return err }))
	return errs
}

func (m *measured) ReadInbox(ctx context.Context, tenant, name, after string,
	limit int) ([]store.InboxMessage, string, error) {
	done := m.timed("read_inbox")
	messages, next, err := m.Store.ReadInbox(ctx, tenant, name, after, limit)
	done(err)
	return messages, next, err
}

func firstError[T any](results []T, of func(T) error) error {
	for _, r := range results {
		if err := of(r); err != nil {
			return err
		}
	}
	return nil
}
