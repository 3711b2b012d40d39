"""One file for each method; importing this package registers them all."""

from whichtoken.methods import (
    att_grads,
    att_x_att_grads,
    attcat,
    attention_grad_cam,
    cam,
    cat,
    contrast_cat,
    gae,
    grad_sam,
    gradient_x_input,
    integrated_gradients,
    random,
    raw_attention,
    refined_noise,
    rollout,
)

__all__ = [
    "att_grads",
    "att_x_att_grads",
    "attcat",
    "attention_grad_cam",
    "cam",
    "cat",
    "contrast_cat",
    "gae",
    "grad_sam",
    "gradient_x_input",
    "integrated_gradients",
    "random",
    "raw_attention",
    "refined_noise",
    "rollout",
]
