//! Rollouts by hand, and over every state.
