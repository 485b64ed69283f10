package store

import "github.com/postdate/postdate"

// Redriven is the result of one redrive. State is the present one, unless the message is not there.
type Redriven struct {
	State postdate.State
	Err   error
}

// Redrive decides what a redrive makes of a message in state st, which expires at expires and must not be sent
// before notBefore. now is false if there is nothing to write: it was redriven before, or there is an error.
func (v *Versioned) Redrive(st postdate.State, notBefore, expires, at postdate.Time) (next postdate.State, now bool,
	err error) {
	if v.Version == 0 && st.Status == postdate.Pending || v.Version != 0 && st.Version == v.Version+1 {
		return st, false, nil
	}
	if err := v.Check(st); err != nil {
		return st, false, err
	}
	switch {
	case st.Status != postdate.DeliveryFailed:
		return st, false, errNotFailed(v.Key, st, "redriven")
	case expires != 0 && expires <= at:
		return st, false, postdate.E(postdate.KindTooLate, "message %q expired at %s, so it is not sent again: "+
			"schedule it anew under another id, or purge it", v.Key.ScheduleID, expires)
	}
	return st.Redrive(max(at, notBefore)), true, nil
}

// CheckPurge returns an error unless a message in that state may be purged.
func (v *Versioned) CheckPurge(st postdate.State) error {
	if err := v.Check(st); err != nil {
		return err
	}
	if st.Status != postdate.DeliveryFailed {
		return errNotFailed(v.Key, st, "purged")
	}
	return nil
}

// errNotFailed says that a message in that state has not failed.
func errNotFailed(key postdate.Key, st postdate.State, done string) error {
	advice := ""
	if st.Status == postdate.Pending {
		advice = "; one that is PENDING can be cancelled"
	}
	return postdate.E(postdate.KindConflict, "message %q is %s: only messages that are DELIVERY_FAILED can be %s%s",
		key.ScheduleID, st.Status, done, advice)
}
