package view

// AppendState writes the JSON of a lead's row.
var AppendState = appendState
