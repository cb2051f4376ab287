package observer

// State is what an observer does (section 2).
type State uint8

// The states.
const (
	Starting State = iota // no acknowledged subscription yet, never synced
	Syncing               // subscription acknowledged, full pass running
	Ready                 // view installed and current as far as known
	Stale                 // view kept but not current; recovery running
	Failed                // ended by an error that no new attempt can mend
	Closed                // ended by the application or by closing the client
)

var stateNames = [...]string{"starting", "syncing", "ready", "stale", "failed", "closed"}

// String returns the name of the state in the specification.
func (s State) String() string { return stateNames[s] }

// Reason is why a view is not current.
type Reason uint8

// The reasons.
const (
	NoReason          Reason = iota
	Disconnected             // the session was lost
	SubscriptionEnded        // the peer ended the subscription
	BrokerRestarted          // the session after the gap is with another lifetime of the broker
	DecodeError              // a notification did not decode
	NoRecentPass             // no full pass was completed for stale_after (OB-36)
	HasFailed                // the observer has failed
	HasClosed                // the observer was closed
)

var reasonNames = [...]string{
	"", "disconnected", "subscription_ended", "broker_restarted", "decode_error", "no_recent_pass", "failed", "closed"}

// String returns the name of the reason in the specification, empty for NoReason.
func (r Reason) String() string { return reasonNames[r] }

// event is what moves an observer from state to state.
type event uint8

const (
	acknowledged event = iota // SUBSCRIBE succeeded
	refused                   // SUBSCRIBE failed in a way that another attempt may mend (OB-34)
	installed                 // a candidate became the view (OB-13)
	gap                       // notifications may have been missed (OB-30)
	overdue                   // stale_after has passed without a good pass (OB-36)
	fatal                     // an error of class never or reauth (OB-37)
	closing                   // the application or the client closes
)

// action is what is done when a transition is taken.
type action uint8

const (
	beginPass  action = iota // start a full pass
	settle                   // the view is current: reset or diff events, fresh when it was stale
	renew                    // OB-30: new generation, drop everything of the old one, subscribe again
	renewStale               // renew, and tell consumers that the view is stale
	retry                    // OB-34: new generation, subscribe again after a delay
	tellStale                // only tell; the subscription is the same and the pass continues
	fail                     // cancel I/O, unsubscribe, keep the view flagged
	end                      // OB-66
)

// condition is a further demand on the observer for a transition to be taken.
type condition uint8

const (
	always condition = iota
	neverSynced
	wasSynced
	forNoRecentPass // the reason is NoRecentPass, so that the subscription is alive
)

// transition is one row of the table.
type transition struct {
	from State
	on   event
	when condition
	to   State
	do   action
}

// transitions is the table of section 2. What is not in it changes no state: a notification, a repair and a periodic pass never leave
// ready.
var transitions = []transition{
	{Starting, acknowledged, always, Syncing, beginPass},
	{Starting, gap, always, Starting, renew},
	{Starting, refused, always, Starting, retry},

	{Syncing, installed, always, Ready, settle},
	{Syncing, gap, neverSynced, Starting, renew},
	{Syncing, gap, wasSynced, Stale, renew},

	{Ready, installed, always, Ready, settle},
	{Ready, gap, always, Stale, renewStale},
	{Ready, overdue, always, Stale, tellStale},

	{Stale, acknowledged, always, Syncing, beginPass},
	{Stale, installed, forNoRecentPass, Ready, settle},
	{Stale, gap, always, Stale, renew}, // a gap replaces the reason; no second event
	{Stale, refused, always, Stale, retry},

	{Starting, fatal, always, Failed, fail},
	{Syncing, fatal, always, Failed, fail},
	{Ready, fatal, always, Failed, fail},
	{Stale, fatal, always, Failed, fail},

	{Starting, closing, always, Closed, end},
	{Syncing, closing, always, Closed, end},
	{Ready, closing, always, Closed, end},
	{Stale, closing, always, Closed, end},
	{Failed, closing, always, Closed, end},
}

// find returns the transition for an event, false when the event changes nothing.
func find(from State, on event, synced bool, reason Reason) (transition, bool) {
	for _, t := range transitions {
		if t.from == from && t.on == on && t.when.holds(synced, reason) {
			return t, true
		}
	}
	return transition{}, false
}

func (c condition) holds(synced bool, reason Reason) bool {
	switch c {
	case neverSynced:
		return !synced
	case wasSynced:
		return synced
	case forNoRecentPass:
		return reason == NoRecentPass
	}
	return true
}
