//! Properties of the gather engine over random trees, faults and requests.
