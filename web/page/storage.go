package page

import "github.com/musterhq/muster/web/view"

// StoragePrice returns what stored bytes of volumes cost, in words.
func (s *Site) StoragePrice() string {
	if p := s.Volumes.Meters.PerGBMonth(); p > 0 {
		return view.Price(p) + " " + s.Currency + " per GB and month"
	}
	return "free"
}
