package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

func jobs() []check {
	return []check{
		{"all of a job reads back, and there are no others", jobsReadBack},
		{"creating it again changes nothing", func(x *trial) {
			j := x.job(home, tenant, "a")
			x.createJob(j)
			next := j
			next.Version, next.Done = 2, 7
			x.setJob(next, true)
			x.createJob(j)
			x.wantJob(next)
			next.Version, next.EndedAt = 3, t0
			x.setJob(next, true)
			x.createJob(j)
			x.wantJob(next)
			x.wantOpen([]int{home})
		}},
		{"it changes only from the version before, and not once it has ended", func(x *trial) {
			j := x.job(home, tenant, "a")
			j.Version = 2
			x.setJob(j, false)
			x.wantNoJob(j.Key)
			j.Version = 1
			x.createJob(j)
			for i, version := range []uint64{0, 1, 3, 2, 2} {
				next := j
				next.Version, next.Done = version, int64(i)
				x.setJob(next, i == 3)
			}
			j.Version, j.Done = 2, 3
			x.wantJob(j)
			j.Version, j.EndedAt = 3, t0
			x.setJob(j, true)
			again := j
			again.Version, again.EndedAt = 4, 0
			x.setJob(again, false)
			x.wantJob(j)
		}},
		{"every job of every tenant is one of its own", func(x *trial) {
			var all []store.Job
			for _, t := range []string{"tenant", "tenant-a"} {
				for i, id := range []string{"a", "ab", "b"} {
					j := x.job(home, t, id)
					j.CreatedAt += postdate.Time(i)
					x.createJob(j)
					all = append(all, j)
				}
			}
			for _, j := range all {
				x.wantJob(j)
			}
			x.wantOpen([]int{home}, all...)
		}},
		{"those of given buckets that have not ended are found", openJobs},
		{"a tenant has a bounded number that have not ended", jobsMax},
		{"one that selects by an error opens, goes on, ends and expires as others do", jobsByError},
		{"of many that set it at once one succeeds", jobsAtOnce},
		{"one that ended before the time is forgotten, and nothing else", expireJobs},
	}
}

func jobsReadBack(x *trial) {
	j := x.job(home, tenant, "a")
	x.wantNoJob(j.Key)
	x.createJob(j)
	x.wantJob(j)
	x.wantNoJob(postdate.Key{Bucket: home, Tenant: tenant, ScheduleID: "b"})
	whole := store.Job{
		Key: postdate.Key{Bucket: abroad, Tenant: tenant, ScheduleID: "whole"}, Version: 1,
		Kind: store.JobPurge,
		Filter: store.JobFilter{Label: "run-7", Channel: "inbox:ü", IDPrefix: "order-", From: t0, To: t0 + 9,
			LastError: "no route"},
		CreatedAt: t0 + 3,
	}
	x.createJob(whole)
	x.wantJob(whole)
	whole.Version, whole.After = 2, &store.ListPosition{ExecutionTime: t0 + 1, Bucket: 3, ScheduleID: "x"}
	whole.Done, whole.Failed, whole.LastError = 1<<40, 1<<41, strings.Repeat("ü", postdate.LastErrorBytesMax/2)
	x.setJob(whole, true)
	x.wantJob(whole)
	whole.Version, whole.After, whole.EndedAt = 3, nil, t0+8
	x.setJob(whole, true)
	x.wantJob(whole)
}

// job is a new job.
func (x *trial) job(b int, tenant, id string) store.Job {
	return store.Job{Key: postdate.Key{Bucket: b, Tenant: tenant, ScheduleID: id}, Version: 1, Kind: store.JobPurge,
		Filter: store.JobFilter{IDPrefix: id}, CreatedAt: t0}
}

func (x *trial) createJob(j store.Job) {
	x.Helper()
	if err := x.store.CreateJob(x.ctx, j); err != nil {
		x.Errorf("CreateJob: %v", err)
	}
}

func (x *trial) setJob(j store.Job, want bool) {
	x.Helper()
	if done, err := x.store.SetJob(x.ctx, j); err != nil || done != want {
		x.Errorf("SetJob to version %d answered %v, %v; want %v", j.Version, done, err, want)
	}
}

func (x *trial) wantJob(want store.Job) {
	x.Helper()
	got, err := x.store.Job(x.ctx, want.Key)
	if err != nil || !reflect.DeepEqual(got, want) {
		x.Errorf("the job %s is %+v, %v; want %+v", want.Key.ScheduleID, got, err, want)
	}
}

func (x *trial) wantNoJob(key postdate.Key) {
	x.Helper()
	_, err := x.store.Job(x.ctx, key)
	x.wantKind(err, postdate.KindNotFound)
}

// wantOpen expects these jobs to be all of these buckets that have not ended.
func (x *trial) wantOpen(buckets []int, want ...store.Job) {
	x.Helper()
	got, err := x.store.OpenJobs(x.ctx, buckets)
	if err != nil {
		x.Errorf("OpenJobs: %v", err)
	}
	order := func(a, b store.Job) int {
		return strings.Compare(a.Key.Tenant+"/"+a.Key.ScheduleID, b.Key.Tenant+"/"+b.Key.ScheduleID)
	}
	want = slices.SortedFunc(slices.Values(want), order)
	slices.SortFunc(got, order)
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		x.Errorf("the jobs of the buckets %v that have not ended are %+v, want %+v", buckets, got, want)
	}
}

func openJobs(x *trial) {
	here, there, other := x.job(home, tenant, "a"), x.job(abroad, tenant, "b"), x.job(home, "tenant-b", "c")
	x.wantOpen(x.everywhere())
	for _, j := range []store.Job{here, there, other} {
		x.createJob(j)
	}
	x.wantOpen([]int{home}, here, other)
	x.wantOpen([]int{abroad}, there)
	x.wantOpen([]int{home, abroad}, here, there, other)
	x.wantOpen(nil)
	x.wantOpen([]int{0})
	here.Version, here.Done, here.After = 2, 3, &store.ListPosition{ExecutionTime: t0, ScheduleID: "z"}
	x.setJob(here, true)
	x.wantOpen([]int{home}, here, other)
	here.Version, here.EndedAt = 3, t0+1
	x.setJob(here, true)
	x.wantOpen(x.everywhere(), there, other)
}

func jobsByError(x *trial) {
	j, other := x.job(home, tenant, "a"), x.job(home, tenant, "b")
	j.Filter.LastError, other.Filter.LastError = "no \x00route »ü«", "no route"
	for _, j := range []store.Job{j, other} {
		x.createJob(j)
		x.createJob(j) // it is there
	}
	for version := range uint64(3) {
		x.wantJob(j)
		x.wantOpen([]int{home}, j, other)
		x.wantOpen([]int{abroad})
		j.Version, j.Done, j.After = version+2, 3, &store.ListPosition{ExecutionTime: t0, ScheduleID: "z"}
		x.setJob(j, true)
	}
	for i := range postdate.JobsMax - 2 {
		x.createJob(x.job(home, tenant, fmt.Sprint("job-", i)))
	}
	x.wantKind(x.store.CreateJob(x.ctx, x.job(home, tenant, "more")), postdate.KindLimited)
	j.Version, j.EndedAt = j.Version+1, t0
	x.setJob(j, true)
	x.wantJob(j)
	x.createJob(x.job(home, tenant, "more"))
	e := store.Expiry{Buckets: []int{abroad}, SettledBefore: t0 + 1, DeliveredBefore: postdate.LatestTime,
		Limit: plenty}
	x.expireIn(e, 0)
	x.wantJob(j)
	e.Buckets = []int{home}
	x.expireIn(e, 0)
	x.wantNoJob(j.Key)
	x.wantJob(other)
}

func jobsMax(x *trial) {
	var all []store.Job
	for i := range postdate.JobsMax {
		j := x.job(i%4, tenant, fmt.Sprint("job-", i))
		x.createJob(j)
		all = append(all, j)
	}
	more := x.job(home, tenant, "more")
	x.wantKind(x.store.CreateJob(x.ctx, more), postdate.KindLimited)
	x.wantNoJob(more.Key)
	x.createJob(all[3]) // it is there
	x.createJob(x.job(home, tenant+"-b", "more"))
	ended := all[5]
	ended.Version, ended.EndedAt = 2, t0
	x.setJob(ended, true)
	x.createJob(more)
	x.wantJob(more)
	x.wantKind(x.store.CreateJob(x.ctx, x.job(home, tenant, "yet more")), postdate.KindLimited)
	x.createJob(all[5]) // it is there, though it has ended
	x.wantJob(ended)
}

func jobsAtOnce(x *trial) {
	const callers = 8
	j := x.job(home, tenant, "a")
	x.createJob(j)
	for round := range uint64(3) {
		var done [callers]bool
		var calls sync.WaitGroup
		for i := range callers {
			calls.Go(func() {
				next := j
				next.Version, next.Done = round+2, int64(i+1)
				var err error
				if done[i], err = x.store.SetJob(x.ctx, next); err != nil {
					x.Errorf("SetJob: %v", err)
				}
			})
		}
		calls.Wait()
		winners := 0
		for i, is := range done {
			if is {
				winners++
				j.Version, j.Done = round+2, int64(i+1)
			}
		}
		if winners != 1 {
			x.Errorf("%d of %d that set a job at once did it, want one", winners, callers)
			return
		}
		x.wantJob(j)
	}
}

func expireJobs(x *trial) {
	end := func(j store.Job, at postdate.Time) store.Job {
		x.createJob(j)
		j.Version, j.EndedAt = 2, at
		x.setJob(j, true)
		return j
	}
	old, young := end(x.job(home, tenant, "old"), t0), end(x.job(home, tenant, "young"), t0+1)
	elsewhere, open := end(x.job(abroad, tenant, "elsewhere"), t0), x.job(home, tenant, "open")
	x.createJob(open)
	e := store.Expiry{Buckets: []int{home}, SettledBefore: t0 + 1, DeliveredBefore: postdate.LatestTime, Limit: plenty}
	x.expireIn(e, 0)
	x.wantNoJob(old.Key)
	for _, j := range []store.Job{young, elsewhere, open} {
		x.wantJob(j)
	}
	x.expire(postdate.LatestTime, postdate.LatestTime, plenty, 0)
	x.wantNoJob(young.Key)
	x.wantNoJob(elsewhere.Key)
	x.wantJob(open)
	x.wantOpen(x.everywhere(), open)
	end(x.job(home, tenant, "old"), t0+5) // the id is free again
}

// jobsSurvive is a durable check.
func jobsSurvive(x *trial) {
	going, ended, gone := x.job(home, tenant, "going"), x.job(home, tenant, "ended"), x.job(home, tenant, "gone")
	for _, j := range []store.Job{going, ended, gone} {
		x.createJob(j)
	}
	going.Version, going.Done, going.After = 2, 1000, &store.ListPosition{ExecutionTime: t0, Bucket: 1, ScheduleID: "m"}
	ended.Version, ended.EndedAt = 2, t0+5
	gone.Version, gone.EndedAt = 2, t0
	for _, j := range []store.Job{going, ended, gone} {
		x.setJob(j, true)
	}
	x.expire(t0+1, 0, plenty, 0)
	x.crash()
	x.wantJob(going)
	x.wantJob(ended)
	x.wantNoJob(gone.Key)
	x.wantOpen(x.everywhere(), going)
}
