/* What a function that may fail or decline returns: one enumeration, so that a caller checks one thing. */
#ifndef SAMERUN_STATUS_H
#define SAMERUN_STATUS_H

typedef enum {
    SAMERUN_NO_MEMORY = -1, /* Python raises MemoryError; results are undefined */
    SAMERUN_DONE = 0,
    /* This way does not suit the shape, or its bits might not be the specified ones (a zero left out would have met an
     * infinity, or turned a -0.0 into +0.0). Take the general way, which overwrites what was written. */
    SAMERUN_DECLINED = 1,
} samerun_status;

#endif
