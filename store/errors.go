package store

import "github.com/postdate/postdate"

// These are the errors that clients of every store see, in the same words.

// ErrNotFound says that there is no such message.
func ErrNotFound(key postdate.Key) error {
	return postdate.E(postdate.KindNotFound,
		"there is no message %q: it was never scheduled, or it expired after its retention", key.ScheduleID)
}

// ErrExists says that another message, with that status, has the id.
func ErrExists(key postdate.Key, status postdate.Status) error {
	return postdate.E(postdate.KindExists, "scheduleId %q is taken by a message with other content (%s): "+
		"choose another id, or replace it with PUT while it is PENDING", key.ScheduleID, status)
}

// ErrTooLate says that a message in that state can be neither cancelled nor replaced.
func ErrTooLate(key postdate.Key, st postdate.State) error {
	if st.Status == postdate.Pending && st.Ending {
		return postdate.E(postdate.KindTooLate, "the delivery of an occurrence of %q, that of %s, may have begun: "+
			"the series ends with it; cancel it again to see that it has ended", key.ScheduleID, st.Occurrence)
	}
	if st.Status == postdate.Pending {
		return postdate.E(postdate.KindTooLate,
			"message %q is due: its delivery may have begun; ask for it again to see how it ended", key.ScheduleID)
	}
	if st.Status == postdate.Cancelled && st.PossibleDuplicate {
		return postdate.E(postdate.KindTooLate, "the series %q has ended with its occurrence of %s, of which an "+
			"attempt has an unknown outcome: it may have been delivered, or still arrive",
			key.ScheduleID, st.Occurrence)
	}
	return postdate.E(postdate.KindTooLate, "message %q is %s already", key.ScheduleID, st.Status)
}

// ErrChanged says that a message is not at the version that the caller knows.
func ErrChanged(key postdate.Key) error {
	return postdate.E(postdate.KindConflict, "message %q was changed by somebody else in between: read it again",
		key.ScheduleID)
}

// CheckGoingOn returns an error unless a message in that state is a series at that version that goes on: PENDING,
// and not Ending.
func CheckGoingOn(key postdate.Key, st postdate.State, version uint64) error {
	switch {
	case st.Status != postdate.Pending || st.Ending:
		return ErrTooLate(key, st)
	case st.Version != version || st.Occurrence == 0:
		return ErrChanged(key)
	}
	return nil
}

// CheckFinal returns an error unless a message in that state is at that version, and final.
func CheckFinal(key postdate.Key, st postdate.State, version uint64) error {
	switch {
	case st.Version != version:
		return ErrChanged(key)
	case !st.Status.Final():
		return postdate.E(postdate.KindConflict, "message %q is %s: it can be deleted once it has ended",
			key.ScheduleID, st.Status)
	}
	return nil
}

// ErrCursorAhead says that nothing as late as a cursor was ever in its inbox.
func ErrCursorAhead(cursor string) error {
	return postdate.E(postdate.KindInvalid, "cursor %q is ahead of the inbox: begin again without one", cursor)
}

// ErrCursorForeign says that another store gave a cursor out.
func ErrCursorForeign(cursor string) error {
	return postdate.E(postdate.KindInvalid, "cursor %q is of another store: begin again without one", cursor)
}

// ErrCursorInvalid says that no store gave a cursor out.
func ErrCursorInvalid(cursor string) error {
	return postdate.E(postdate.KindInvalid, "cursor %q is none that was given out: begin again without one", cursor)
}

// ErrNoKey says that there is no API key with that id.
func ErrNoKey(id string) error {
	return postdate.E(postdate.KindNotFound, "there is no API key %q: it was never made, or it was revoked", id)
}

// ErrKeyExists says that another API key has the id.
func ErrKeyExists(id string) error {
	return postdate.E(postdate.KindExists, "there is another API key %q: make one with another id", id)
}

// ErrTooManyKeys says that there is no place for one more API key.
func ErrTooManyKeys() error {
	return postdate.E(postdate.KindTooLarge, "there are %d API keys, and no more are allowed: revoke those that "+
		"nobody uses", postdate.APIKeysMax)
}
