package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// consumption is what nodes have taken of the machine.
type consumption struct {
	processor time.Duration // of all nodes, since their start
	mongodb   time.Duration // of the server of MongoDB, since its start
	memory    int64         // bytes: the nodes' own pages, and their parts of shared ones
	disk      int64         // bytes
}

// consumption reads what the nodes have taken so far. It needs Linux.
func (n *nodes) consumption(ctx context.Context) (c consumption, err error) {
	for _, s := range n.servers {
		p, err := procfs.NewProc(s.process.Process.Pid)
		if err != nil {
			return c, fmt.Errorf("cannot read what a node takes, which needs Linux: %w", err)
		}
		stat, err := p.Stat()
		if err != nil {
			return c, err
		}
		maps, err := p.ProcSMapsRollup()
		if err != nil {
			return c, err
		}
		c.processor += time.Duration(stat.CPUTime() * float64(time.Second))
		c.memory += int64(maps.Pss)
	}
	if n.database == nil {
		c.disk, err = diskUse(n.data)
		return c, err
	}
	if c.mongodb, err = n.database.processor(ctx); err != nil {
		return c, err
	}
	c.disk, err = n.database.disk(ctx)
	return c, err
}

// diskUse returns the bytes of the disk's blocks that a folder's files take.
func diskUse(folder string) (sum int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return gone(err)
		}
		info, err := d.Info()
		if err != nil {
			return gone(err)
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += s.Blocks * 512
		}
		return nil
	})
	return sum, err
}

// gone is nil if err says that a file is not there: the store has deleted it meanwhile.
func gone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
