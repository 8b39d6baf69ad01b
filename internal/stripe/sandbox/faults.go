package sandbox

import (
	"net/http"
	"time"
)

// Fault is one way to misbehave, for the next changing request.
type Fault string

const (
	// The request takes effect, and the caller does not learn of it.
	LostAnswer Fault = "lost_answer" // the connection breaks (Go sends again by itself when it had been used before)
	Truncated  Fault = "truncated"   // 200, and half of the body
	Error500   Fault = "error_500"   // an error page
	Timeout    Fault = "timeout"     // no answer until the caller gives up
	// The request takes no effect.
	RateLimited Fault = "rate_limited" // 429
	Down        Fault = "down"         // 503
	Refused     Fault = "refused"      // the connection breaks at once
	InUse       Fault = "in_use"       // 409: another request with this key is under way
	// The request works, late.
	Slow Fault = "slow"
	// Good behaviour, to put between faults.
	None Fault = ""
)

// slowness is how late a Slow answer is.
const slowness = 50 * time.Millisecond

// Faults is how a server misbehaves.
type Faults struct {
	store     *store // its lock
	faults    []Fault
	calls     int  // changing requests
	throttled bool // only room more of them are let through
	room      int
}

// Fail makes the next changing requests misbehave, one fault each, in order.
func (fs *Faults) Fail(faults ...Fault) {
	fs.store.mu.Lock()
	defer fs.store.mu.Unlock()
	fs.faults = append(fs.faults, faults...)
}

// Heal forgets the faults that were not used.
func (fs *Faults) Heal() {
	fs.store.mu.Lock()
	defer fs.store.mu.Unlock()
	fs.faults, fs.throttled = nil, false
}

// Throttle lets so many changing requests through and answers the further ones with 429, until Heal.
func (fs *Faults) Throttle(requests int) {
	fs.store.mu.Lock()
	defer fs.store.mu.Unlock()
	fs.throttled, fs.room = true, requests
}

// Calls is how many changing requests there were.
func (fs *Faults) Calls() int {
	fs.store.mu.Lock()
	defer fs.store.mu.Unlock()
	return fs.calls
}

func (fs *Faults) next() Fault {
	fs.store.mu.Lock()
	defer fs.store.mu.Unlock()
	fs.calls++
	if fs.throttled {
		if fs.room--; fs.room < 0 {
			return RateLimited
		}
	}
	if len(fs.faults) == 0 {
		return None
	}
	f := fs.faults[0]
	fs.faults = fs.faults[1:]
	return f
}

// before misbehaves instead of the request; done reports that nothing else is to happen.
func (f Fault) before(w http.ResponseWriter, r *http.Request) (done bool) {
	switch f {
	case RateLimited:
		apiError{
			Status:  429,
			Type:    "invalid_request_error",
			Code:    "rate_limit",
			Message: "Too many requests",
		}.answer().write(w)
	case Down:
		apiError{Status: 503, Type: "api_error", Message: "Stripe is down"}.answer().write(w)
	case InUse:
		apiError{
			Status:  409,
			Type:    "idempotency_error",
			Code:    "idempotency_key_in_use",
			Message: "There is currently another in-progress request using this Idempotent Key",
		}.answer().write(w)
	case Refused:
		hangUp(w)
	default:
		return false
	}
	return true
}

// after misbehaves in answering.
func (f Fault) after(w http.ResponseWriter, r *http.Request, a answer) {
	switch f {
	case LostAnswer:
		hangUp(w)
	case Truncated:
		a.Body = a.Body[:len(a.Body)/2]
		a.write(w)
	case Error500:
		apiError{Status: 500, Type: "api_error", Message: "An unknown error occurred"}.answer().write(w)
	case Timeout:
		<-r.Context().Done()
	case Slow:
		t := time.NewTimer(slowness)
		defer t.Stop()
		select {
		case <-t.C:
			a.write(w)
		case <-r.Context().Done():
		}
	default:
		a.write(w)
	}
}

func hangUp(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = c.Close() // that is the point
	}
}
