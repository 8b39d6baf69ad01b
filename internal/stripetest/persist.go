package stripetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

func (s *Server) load() error {
	if s.cfg.File == "" {
		return nil
	}
	b, err := os.ReadFile(s.cfg.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &s.s); err != nil {
		return fmt.Errorf("the sandbox's Stripe cannot read its state, %s, which another version may have written: start anew "+
			"in another folder, or remove this one with muster dev --down; no real money is in it: %w", s.cfg.File, err)
	}
	if s.s.Keys == nil {
		s.s.Keys = map[string]answer{}
	}
	if len(s.s.Events) > 0 {
		s.news <- struct{}{}
	}
	return nil
}

// save replaces the file whole. A fake that cannot remember must not go on as if it could.
func (s *Server) save() {
	if s.cfg.File == "" {
		return
	}
	b, err := json.Marshal(s.s)
	if err != nil {
		panic(err) // our own types
	}
	tmp := s.cfg.File + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		panic(fmt.Sprintf("stripetest: %v", err))
	}
	if err := os.Rename(tmp, s.cfg.File); err != nil {
		panic(fmt.Sprintf("stripetest: %v", err))
	}
}
