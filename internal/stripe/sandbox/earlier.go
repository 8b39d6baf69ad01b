package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// readEarlier takes over the file in which earlier versions kept their state, where there is none yet. Idempotency keys
// and events under way are not taken over.
func (s *Server) readEarlier(file string) error {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.mu.shelves {
		if k.size() > 0 {
			return nil
		}
	}
	if err := json.Unmarshal(b, &s.s); err != nil {
		return fmt.Errorf("the sandbox's Stripe cannot read its state, %s, which another version may have written: start "+
			"anew "+
			"in another folder, or remove this one with muster dev --down; no real money is in it: %w", file, err)
	}
	for _, k := range s.mu.shelves {
		k.touchAll()
	}
	s.save()
	return nil
}
