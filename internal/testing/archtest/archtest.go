// Package archtest holds the house to its plan: which floor imports which, and which package writes which table.
// It has no code of its own; its tests read the sources.
package archtest
