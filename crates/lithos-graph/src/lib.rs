//! The intermediate representation of a model, its validation, and a slow f32 interpreter that is the oracle of every backend.
