package market

import (
	"slices"

	"github.com/musterhq/muster/internal/id"
)

// sortedUnique sorts ids in place, in the order of locks, and drops repetitions.
func sortedUnique[K id.Kind](ids []id.ID[K]) []id.ID[K] {
	slices.SortFunc(ids, id.ID[K].Compare)
	return slices.Compact(ids)
}
