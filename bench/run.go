package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"
)

// run is one run of a workload on a server that was just started and is empty.
type run struct {
	options
	ctx      context.Context
	peer     peer
	server   *server
	given    uint64 // ids
	size     int    // of a payload
	perBatch int    // messages of a batch
}

// messages returns a recorder of n new messages.
func (r *run) messages(n int) *recorder {
	r.given += uint64(n)
	return newRecorder(r.given-uint64(n), n, r.size)
}

// runOnce starts the peer's server, runs one workload, and stops it.
func (b *bench) runOnce(ctx context.Context, p prepared, w workload) result {
	r := result{Peer: p.name, Synced: p.synced, Settings: p.version + "; " + p.settings, Workload: w.name,
		Load: w.load(b.options), Machine: b.report.machine}
	begun := time.Now()
	err := func() error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		dir, err := os.MkdirTemp(b.root, "run-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		one := run{options: b.options, ctx: ctx, peer: p.make(), size: payloadBytes, perBatch: batchItems}
		if one.server, err = b.newServer(p, one.peer, dir); err != nil {
			return err
		}
		defer one.server.stop()
		if err := one.server.start(ctx); err != nil {
			return err
		}
		if err = one.peer.connect(ctx, one.server.address); err != nil {
			err = fmt.Errorf("cannot connect: %w", err)
		} else {
			r.Figures, err = w.run(&one)
		}
		cancel()
		one.peer.close()
		one.server.stop()
		if err != nil {
			return err
		}
		r.Figures[serverCPU] = one.server.spent.Seconds()
		return clockWasSet(begun)
	}()
	if err != nil {
		r.Figures, r.Err = nil, err.Error()
		r.cannot = errors.Is(err, errNoBatch)
	}
	return r
}

func (b *bench) newServer(p prepared, kind peer, dir string) (*server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	s := &server{binary: p.binary, address: address, log: filepath.Join(dir, "log"), root: b.root}
	s.command, err = kind.command(address, data)
	return s, err
}

// clockWasSet returns an error if the machine's clock, which all due times are in, was set.
func clockWasSet(begun time.Time) error {
	const far = 0.05
	byClock := time.Now().Round(0).Sub(begun.Round(0)) // Round takes the reading of the steady clock away
	if by := (byClock - time.Since(begun)).Seconds(); math.Abs(by) > far {
		return fmt.Errorf("the machine's clock was set by %.3f s during the run: run it again", by)
	}
	return nil
}

// warmUp starts the consumers and waits until a first message has come through.
func (r *run) warmUp(rec *recorder) error {
	id := 1<<40 + r.given // above all others
	arrived := make(chan struct{}, 1)
	err := r.peer.consume(r.ctx, func(b []byte) {
		if string(b) != string(payload(id, r.size)) {
			rec.deliver(b)
			return
		}
		select {
		case arrived <- struct{}{}:
		default: // once more, after a crash
		}
	})
	if err != nil {
		return fmt.Errorf("cannot consume: %w", err)
	}
	due := time.Now().Add(time.Second)
	if err := r.peer.schedule(r.ctx, item{id, due, payload(id, r.size)}); err != nil {
		return err
	}
	select {
	case <-arrived:
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	case <-time.After(startTimeout):
		return fmt.Errorf("the first message did not arrive within %v", startTimeout)
	}
}
