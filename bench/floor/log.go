package main

import "os"

// groupLog appends records to a file. Those that come during a sync share the next one.
type groupLog struct {
	file    *os.File
	waiting chan record
}

type record struct {
	bytes []byte
	done  chan error
}

func openLog(name string) (*groupLog, error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	l := &groupLog{file, make(chan record, 1000)}
	go l.write()
	return l, nil
}

// append returns once the record is synced. A nil log does nothing.
func (l *groupLog) append(b []byte) error {
	if l == nil {
		return nil
	}
	r := record{b, make(chan error, 1)}
	l.waiting <- r
	return <-r.done
}

func (l *groupLog) write() {
	for first := range l.waiting {
		group, bytes := []record{first}, append([]byte(nil), first.bytes...)
		for more := len(l.waiting); more > 0; more-- {
			r := <-l.waiting
			group, bytes = append(group, r), append(bytes, r.bytes...)
		}
		_, err := l.file.Write(bytes)
		if err == nil {
			err = l.file.Sync()
		}
		for _, r := range group {
			r.done <- err
		}
	}
}
